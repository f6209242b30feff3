"""Arms before a camera: hands are where they should be, all bodies make the same motions, and films can be kept."""

import numpy as np
import pytest
import torch
from PIL import Image
from pindown_papers.simulations import Filmed, RobotArm, save_animation

from pindown.errors import InputError

PROCESS = Filmed.different(3, size=16)
JOINTS = ("yaw", "shoulder", "elbow")


@pytest.mark.parametrize("wrist", [-20.0, 0.0, 30.0])
def test_an_arm_puts_its_hand_at_the_target(wrist):
    arm = RobotArm(16, factors=JOINTS, fixed={"wrist": wrist}, lengths=(0.7, 0.6, 0.3))
    hand = torch.tensor([[0.7, 0.9, 0.7], [-0.6, 1.0, 0.7]], dtype=torch.float64)
    assert torch.allclose(arm.hand(arm.reaching(hand)), hand, atol=1e-9)


def test_hands_move_as_the_actions_say_and_alike_in_all_bodies():
    samples = PROCESS.same_motions(20, random_state=0)
    assert all(torch.equal(sample.z, samples[0].z) for sample in samples)
    assert not torch.allclose(samples[0].x, samples[1].x, atol=0.1)
    films = [PROCESS.episodes(4, 5, bodies=torch.full((4,), e), random_state=0) for e in (0, 2)]
    assert torch.equal(films[0].actions, films[1].actions)
    assert films[0].actions.abs().max() <= 0.15 + 1e-6
    assert torch.equal(films[0].frames, PROCESS.episodes(4, 5, bodies=torch.zeros(4), random_state=0).frames)


def test_what_an_arm_cannot_do_raises():
    with pytest.raises(InputError):
        RobotArm(16, factors=JOINTS).reaching(torch.tensor([[3.0, 1.0, 0.0]]))
    with pytest.raises(InputError):
        RobotArm(16).reaching(torch.zeros(1, 3))
    with pytest.raises(InputError):
        RobotArm(16, lengths=(1.0, 0.0, 1.0))
    with pytest.raises(InputError):
        Filmed(PROCESS.arms[:1])
    with pytest.raises(InputError):
        Filmed((RobotArm(16, factors=JOINTS), RobotArm(16, factors=JOINTS, lengths=(0.3, 0.3, 0.2))))


def test_an_animation_holds_every_image(tmp_path):
    images = np.random.default_rng(0).integers(256, size=(5, 6, 7, 3), dtype=np.uint8)
    save_animation(tmp_path / "a.png", images, seconds=0.1)
    with Image.open(tmp_path / "a.png") as read:
        assert read.n_frames == 5
        for number, image in enumerate(images):
            read.seek(number)
            assert np.array_equal(np.asarray(read.convert("RGB")), image)
        assert read.info["duration"] == pytest.approx(100)
    with pytest.raises(InputError):
        save_animation(tmp_path / "b.png", images / 255)
    assert not (tmp_path / "b.png").exists()
