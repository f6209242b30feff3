"""`Confounded`: a nuisance that correlates with a label."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown.errors import InputError
from pindown.networks.spaces import Reals
from pindown.simulate import Process, Sample
from pindown.simulate.mixing import Mixing
from pindown.simulate.process import check_mixing, frequencies, placed
from pindown.theory import Assumption


@dataclass(frozen=True, eq=False)
class Confounded(Process):
    """A nuisance e that correlates with a label c, as in an unbalanced study: (c, e) ~ joint, x = g(z, w).

    The label moves z | c ~ N(l_c, I), the nuisance moves w | e ~ N(v_e, I). So z is independent of e *given the
    label*, but not marginally: an embedding that is independent of e loses part of c. The label is ``Sample.label``.

    Parameters
    ----------
    label_vectors : Tensor of shape (n_labels, d)
        The means l_c of z.
    nuisance_vectors : Tensor of shape (n_levels, n_affected)
        The means v_e of w.
    joint : Tensor of shape (n_labels, n_levels)
        Frequencies of the pairs (c, e), up to a factor.
    mixing : Mixing
        The map g of (z, w).

    Examples
    --------
    >>> from pindown.simulate.mixing import identity
    >>> joint = torch.tensor([[9.0, 1.0], [1.0, 9.0]])  # nearly every sample of a label has the same level
    >>> process = Confounded(torch.eye(2), torch.tensor([[-1.0], [1.0]]), joint, identity(3))
    >>> sample = process.sample(10_000, random_state=0)
    >>> round((sample.label == sample.u).float().mean().item(), 1)
    0.9
    """

    role_of_u = "nuisance"

    label_vectors: Tensor
    nuisance_vectors: Tensor
    joint: Tensor
    mixing: Mixing

    def __post_init__(self) -> None:
        shape = (len(self.label_vectors), len(self.nuisance_vectors))
        if self.joint.shape != shape or not (self.joint >= 0).all() or not self.joint.sum() > 0:
            got = f"shape {tuple(self.joint.shape)}"
            raise InputError(
                "joint", f"`joint` must be {shape[0]} × {shape[1]} frequencies, labels × levels, got {got}."
            )
        check_mixing(self.d + self.nuisance_vectors.shape[1], Reals(), self.mixing)

    @property
    def d(self) -> int:
        """Number of latents that are independent of the nuisance given the label."""
        return self.label_vectors.shape[1]

    @property
    def prior(self) -> NDArray[np.float64]:
        """Probability of each level of the nuisance."""
        return frequencies(self.joint.sum(0))

    @property
    def assumptions(self) -> frozenset[Assumption]:
        """Assumptions that hold in this simulation; z depends on e unless the label is given."""
        return self.mixing.assumptions

    def _draw(self, n: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Sample:
        pair = self._draw_categories(n, rng, device)
        label, u = pair // self.joint.shape[1], pair % self.joint.shape[1]
        means = [placed(self.label_vectors, device)[label], placed(self.nuisance_vectors, device)[u]]
        white = torch.randn(n, self.mixing.d, generator=rng, device=device, dtype=dtype)
        a = white + torch.cat(means, 1).to(dtype)
        return Sample(x=placed(self.mixing, device)(a), z=a[:, : self.d], u=u, label=label)

    @cached_property
    def _thresholds(self) -> Tensor:
        return torch.as_tensor(frequencies(self.joint.flatten())).cumsum(0)[:-1]
