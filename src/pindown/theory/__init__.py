"""Identifiability theorems as frozen data: assumptions, what is recovered, and the remaining indeterminacy.

A simulation satisfies assumptions, an estimator has a theorem, and a metric ignores an indeterminacy. All use the
vocabulary of this file, so that an audit can compare them. Symbols: z latents (d of them), x = g(z),
u the auxiliary variable, f the encoder, ẑ = f(x), h = f∘g, v_c class vectors, e a nuisance,
V = span{v_e − v_e'}, S = supp(D_z g), I_k the latents that x_k depends on.

Theorem numbers of Zimmermann et al. are those of their earlier version, "Contrastive Learning can Identify
the Underlying Generative Factors of the Data". Auxiliary ICA, TCL, iVAE, Roeder et al. and the interventions
are quoted for their counting conditions, in short: read the paper before relying on them.

>>> print(CLASSIFY_NORMALISED.claim())
If these hold: injective mixing, vMF clusters, affine generator system, global optimum reached, unit-norm
features and weights, and at least d + 1 classes, then the latents are recovered up to an orthogonal map and
one scale (Reizinger et al. 2024, arXiv:2410.21869, Th. 1).
"""

import math

from pindown.theory.statements import Assumption, Diversity, Freedom, Indeterminacy, Theorem, Weakening

# Saved files name these classes as members of this module.
for _class in (Assumption, Diversity, Freedom, Indeterminacy, Theorem, Weakening):
    _class.__module__ = __name__

# A table with its own layout: one argument per line would take three more screens.
# fmt: off

_SIGNED = frozenset({Freedom.PERMUTATION, Freedom.SIGN, Freedom.SCALE})
_LINEAR = _SIGNED | {Freedom.ROTATION, Freedom.COORDINATE_SCALE}  # a matrix is rotation · scaling · rotation
_COORDINATEWISE = _SIGNED | {Freedom.COORDINATE_SCALE, Freedom.SHIFT, Freedom.COORDINATE_WARP}
_BIJECTIVE = _LINEAR | _COORDINATEWISE | {Freedom.BLOCK_WARP, Freedom.WARP}

IDENTITY = Indeterminacy("nothing at all", "ẑ = z", frozenset())
PERMUTATION = Indeterminacy("a permutation", "ẑ = P z, P a permutation", frozenset({Freedom.PERMUTATION}))
SIGNED_PERMUTATION = Indeterminacy("a signed permutation and one scale",
    "ẑ = s P z, P a permutation with signs, s > 0 common to all coordinates", _SIGNED)
SHIFTED_SIGNED_PERMUTATION = Indeterminacy("a signed permutation, one scale and a shift",
    "ẑ = s P z + b, P a permutation with signs, s > 0 common to all coordinates", _SIGNED | {Freedom.SHIFT})
SCALED_PERMUTATION = Indeterminacy("a permutation, and a sign, scale and shift of each coordinate",
    "ẑ = P diag(s) z + b, every s_j ≠ 0: what a matched correlation (MCC) ignores",
    _SIGNED | {Freedom.COORDINATE_SCALE, Freedom.SHIFT})
ORTHOGONAL = Indeterminacy("an orthogonal map and one scale",
    "ẑ = s Q z, QᵀQ = I, s > 0", _SIGNED | {Freedom.ROTATION})
LINEAR = Indeterminacy("an invertible linear map", "ẑ = A z, det A ≠ 0", _LINEAR)
AFFINE = Indeterminacy("an invertible affine map",
    "ẑ = A z + b, det A ≠ 0: what R² of a linear fit with intercept ignores", _LINEAR | {Freedom.SHIFT})
ELEMENTWISE = Indeterminacy("a permutation and an invertible function of each coordinate",
    "ẑ_π(j) = φ_j(z_j), φ_j invertible", _COORDINATEWISE)
AFFINE_OF_STATISTICS = Indeterminacy("an affine map of coordinatewise statistics",
    "ẑ = A T(z) + b, T acting on each z_j alone and perhaps not invertible (T(z) = z² loses the sign)",
    _LINEAR | _COORDINATEWISE | {Freedom.FOLD})
BLOCKWISE = Indeterminacy("a permutation and invertible functions within atomic regions",
    "z_i is no function of ẑ_π(j) when i∈I_K∩I_L and j∈I_K△I_L, or i∈I_K△I_L and j∈I_K∩I_L, or one of them is"
    " in I_K∖I_L and the other in I_L∖I_K, for all sets K, L of observed variables",
    _COORDINATEWISE | {Freedom.BLOCK_WARP})
BIJECTION = Indeterminacy("one continuous bijection", "ẑ = Φ(z), Φ continuous and invertible", _BIJECTIVE)
BIJECTION_PER_LEVEL = Indeterminacy("a continuous bijection per level of the nuisance",
    "ẑ = Φ_e(z), Φ_e continuous and invertible, perhaps another one for every e",
    _BIJECTIVE | {Freedom.PER_LEVEL})

INJECTIVE_MIXING = Assumption("injective mixing", "mixing",
    "x = g(z), g continuous and injective (for the contrastive results also differentiable)")
DIFFEOMORPHIC_MIXING = Assumption("diffeomorphic mixing", "mixing",
    "x = g(z), g a diffeomorphism onto its image")
INJECTIVE_GIVEN_NUISANCE = Assumption("injective given the nuisance", "mixing",
    "x = g(z, e), g(·, e) continuous and injective for every e, and x depends on nothing else")
PARAMETRIC_MIXING = Assumption("linear or polynomial mixing", "mixing",
    "x = g(z), g linear (Squires et al.) or polynomial (Ahuja et al.)")

UNIFORM_SPHERE = Assumption("uniform marginal on the sphere", "marginal", "z ~ Uniform(S^{d−1})")
UNIFORM_CONVEX_BODY = Assumption("uniform marginal on a convex body", "marginal",
    "z is uniform on a convex body such as a box; Th. 6 itself only needs p(z) to fill the body or ℝ^d;"
    " uniformity makes the contrastive loss tend to the cross-entropy of the theorem (eq. 62–63)")
POSITIVE_DENSITY = Assumption("positive density", "marginal", "p(z) > 0 on the whole latent space")
INDEPENDENT_BLOCKS = Assumption("independent blocks", "marginal",
    "the blocks of z are independent: not listed by the paper, but used in its proof of Th. 1, case (ii)")
NUISANCE_INDEPENDENT = Assumption("latent independent of the nuisance", "marginal",
    "p(z|e) = p(z) for every e")

VMF_CONDITIONAL = Assumption("vMF conditional", "conditional", "z̃|z ~ vMF(z, κ), i.e. p(z̃|z) ∝ exp(κ zᵀz̃)")
METRIC_CONDITIONAL = Assumption("metric conditional", "conditional",
    "p(z̃|z) ∝ exp(−λ δ(z̃, z)), δ a semi-metric; its last step (Mazur–Ulam) takes δ from a norm")
LP_CONDITIONAL = Assumption("L^p conditional with p ≠ 2", "conditional",
    "p(z̃|z) ∝ exp(−λ ‖z̃ − z‖_p^p), p ≥ 1, p ≠ 2 (p = 1: Laplace)")
VMF_CLUSTERS = Assumption("vMF clusters", "conditional", "z|i ~ vMF(v_C(i), κ), C(i) the class of instance i")
NUISANCE_VMF = Assumption("vMF nuisance", "conditional", "ã|e ~ vMF(v_e, κ) on the sphere, one κ for every e")
CONDITIONAL_INDEPENDENCE = Assumption("conditional independence", "conditional",
    "log p(z|u) = Σ_j q_j(z_j, u): the latents are independent given u")
EXPONENTIAL_FAMILY = Assumption("exponential family", "conditional",
    "p(z|u) ∝ Π_j Q_j(z_j) exp(Σ_l T_jl(z_j) λ_jl(u)), l = 1…k")

SHARED_CONTENT = Assumption("content shared by positives", "conditional",
    "z = (c, s): positives share the content c; the style s differs between them, in all directions")
VARIABILITY = Assumption("variability", "labels",
    "the 2d differences over 2d+1 values of u of (∂, ∂²) log p(z_j|u), j = 1…d, are linearly independent")
MODULATED_SEGMENTS = Assumption("modulated segments", "labels",
    "log p(z_j|τ) = λ_j(τ) q(z_j) + const in segment τ, and the matrix λ_j(τ) − λ_j(1) has full column rank")
NATURAL_PARAMETERS = Assumption("varied natural parameters", "labels",
    "the dk×dk matrix of natural-parameter differences λ(u_l) − λ(u_0) is invertible")
AFFINE_GENERATORS = Assumption("affine generator system", "labels",
    "{v_c − v_a} spans ℝ^d: the class vectors lie in no affine hyperplane")
INDEPENDENT_DIFFERENCES = Assumption("independent label differences", "labels",
    "M differences w(y_i) − w(y_0) of label vectors are linearly independent")
SINGLE_INTERVENTIONS = Assumption("perfect interventions", "labels",
    "every latent is the target of a perfect intervention on it alone")
PAIRED_INTERVENTIONS = Assumption("paired perfect interventions", "labels",
    "every latent is the target of two distinct perfect interventions; which one is unknown")

SUFFICIENT_NONLINEARITY = Assumption("sufficient nonlinearity", "structure",
    "for each x_i, |I_i| samples have Jacobian rows that are linearly independent and stay in the support")
DIVERSE_SUPPORT = Assumption("diverse support", "structure",
    "each latent i has observed variables A with I_k ∖ ∪_{l∈A, l≠k} I_l = {i} for some k∈A, or"
    " (∩_{l∈A, l≠k} I_l) ∖ I_k = {i} for some k∈A, or ∩_{k∈A} I_k = {i} (reconstructed from the proof)")

SPARSE_COMBINATION = Assumption("sparse combination", "mixing",
    "x = Dᵀz + b exactly, D a dictionary with d atoms in m dimensions, and most of z is 0")
INDEPENDENT_ATOMS = Assumption("independent atoms", "mixing", "the d ≤ m atoms are linearly independent")
SCATTERED_ACTIVATIONS = Assumption("scattered activations", "marginal",
    "features are active in so many combinations that, with E|z_j| = 1, every w with E|wᵀz| ≤ 1 has ‖w‖ ≤ 1, and norm 1"
    " only if it selects one feature (overcomplete: a stronger form); dense Gaussian features are not scattered")
FEWER_THAN_SPARK = Assumption("fewer than half the spark", "marginal",
    "‖z‖₀ < spark(D)/2, the spark being the least number of dependent atoms; ‖z‖₀ < (1 + 1/μ)/2 is enough, with μ the"
    " largest cosine of two atoms")
KNOWN_ATOMS = Assumption("known dictionary", "model", "the dictionary is the true one")
SPARSEST_ACTIVATIONS = Assumption("sparsest activations", "model",
    "features are the sparsest that reconstruct x; an encoder of one pass does not search for them")
LEAST_VOLUME = Assumption("least L1 and volume", "model",
    "the fit is the global optimum of min Σ_j log E|ẑ_j| − log|det W|, ẑ = W x (overcomplete: of the volume of D with"
    " E|ẑ_j| ≤ 1)")

MATCHING_MODEL = Assumption("matching model", "model",
    "the model's similarity has the form of the conditional: q_h(z̃|z) ∝ exp(−δ(h(z̃), h(z))),"
    " on the sphere exp(h(z̃)ᵀh(z)/τ), and the encoder is flexible enough to reach it")
MANY_NEGATIVES = Assumption("many negatives", "model",
    "M → ∞ negatives: the loss less log M tends to the cross-entropy of p(·|z) and q_h(·|z) (Th. 1)")
UNIT_FEATURES = Assumption("unit-norm features", "model", "‖f(x)‖ = 1 in softmax(β W f(x)), W free")
UNIT_NORM = Assumption("unit-norm features and weights", "model", "‖f(x)‖ = ‖w_i‖ = 1 in softmax(β W f(x))")
SOFTMAX_MODEL = Assumption("softmax model", "model", "p(y|x) ∝ exp(f(x)ᵀw(y)), with f(x), w(y) ∈ ℝ^M")
BIJECTIVE_OBSERVABLE = Assumption("bijective observable", "model", "ã = ρ(a), ρ a bijection")
# dim V is at most the number of nuisance levels minus one: FORGET counts the levels by it.
LINEAR_ENCODER = Assumption("linear encoder of full rank", "model", "ẑ = M ã, rank M = d_z = d_a − dim V")
INFORMATION_KEPT = Assumption("information kept", "model",
    "M has orthonormal rows, or a decoder reconstructs ã from (ẑ, e): a constant is invariant, too")
EXACT_RECONSTRUCTION = Assumption("exact reconstruction", "model", "a decoder reconstructs x from (ẑ, e) without error")
SPARSE_ENOUGH = Assumption("sparse enough", "model",
    "‖D_ẑ ĝ‖₀ ≤ ‖D_z g‖₀: a bias of the fit, not of the data")
SAME_DISTRIBUTION = Assumption("same distribution", "model", "the fit has exactly the observed distribution")
OPTIMUM_REACHED = Assumption("global optimum reached", "model", "f is globally optimal on unlimited data")

_CONTRAST = (MATCHING_MODEL, MANY_NEGATIVES, OPTIMUM_REACHED)
_CLASSIFY = (INJECTIVE_MIXING, VMF_CLUSTERS, AFFINE_GENERATORS, OPTIMUM_REACHED)
_DICTIONARY = (DIFFEOMORPHIC_MIXING, POSITIVE_DENSITY, SUFFICIENT_NONLINEARITY, SPARSE_ENOUGH,
               SAME_DISTRIBUTION)

CONTRAST_SPHERE = Theorem("contrast-sphere", "Zimmermann et al. 2021, ICML, Th. 2", side_information="pairs",
    assumes=(INJECTIVE_MIXING, UNIFORM_SPHERE, VMF_CONDITIONAL, *_CONTRAST), indeterminacy=ORTHOGONAL,
    promises="h keeps dot products up to a constant factor, so it is an orthogonal map times a scale.",
    not_promised=("axis alignment: the rotation stays free, so MCC may be low",
                  "anything for pairs that differ in another way than the conditional"))
CONTRAST_METRIC = Theorem("contrast-metric", "Zimmermann et al. 2021, ICML, Th. 6", side_information="pairs",
    assumes=(INJECTIVE_MIXING, UNIFORM_CONVEX_BODY, METRIC_CONDITIONAL, *_CONTRAST), indeterminacy=AFFINE,
    promises="h is an isometry of δ up to the factor λ, and therefore affine.",
    not_promised=("axis alignment", "that InfoNCE on all of ℝ^d minimises the cross-entropy of the theorem"))
CONTRAST_LP = Theorem("contrast-lp", "Zimmermann et al. 2021, ICML", side_information="pairs",
    assumes=(INJECTIVE_MIXING, UNIFORM_CONVEX_BODY, LP_CONDITIONAL, *_CONTRAST),
    indeterminacy=SHIFTED_SIGNED_PERMUTATION,  # shift: the loss sees only z̃ − z; one scale: λδ = δ∘h
    promises="h permutes the latents, with signs and a scale; the origin is free.",
    not_promised=("anything at p = 2, where rotations keep the norm", "which latent is which"))
CONTRAST_CONTENT = Theorem("contrast-content", "von Kügelgen et al. 2021, NeurIPS, Th. 4.4", side_information="pairs",
    assumes=(DIFFEOMORPHIC_MIXING, POSITIVE_DENSITY, SHARED_CONTENT, OPTIMUM_REACHED), indeterminacy=BIJECTION,
    subject="the content shared by positives is recovered as a block",
    promises="The latents are a function of the content alone, and determine it, if they have its dimension.",
    not_promised=("single latents inside the block", "the style, in which positives differ"))

_LABEL_LIMITS = ("anything with fewer than d + 1 spread classes", "tails that are not vMF")
_CLASSES = Diversity("d + 1", "classes", lambda d, k: d + 1)
# Softmaxes agree if β(w_c − w_a)ᵀh(z) = κ(v_c − v_a)ᵀz for all c. The differences of the v span ℝ^d, so h is linear,
# h(z) = A z, and w_c = (κ/β) A⁻ᵀ v_c + t. Unit-norm features make A orthogonal; with unit-norm w also
# t = 0 and β = κ.
CLASSIFY_NORMALISED = Theorem("classify-normalised", "Reizinger et al. 2024, arXiv:2410.21869, Th. 1",
    side_information="a label that is signal: class or instance index",
    assumes=(*_CLASSIFY, UNIT_NORM), indeterminacy=ORTHOGONAL,
    promises="h is orthogonal, w_i is the image of v_C(i) under the same map, β = κ, and w_i = w_j within a class.",
    not_promised=("axis alignment", "anything if β is fixed at another value than κ", *_LABEL_LIMITS),
    diversity=_CLASSES)
CLASSIFY_UNIT_FEATURES = Theorem("classify-unit-features", "Reizinger et al. 2024, arXiv:2410.21869, Th. 1",
    side_information="a label that is signal: class or instance index",
    assumes=(*_CLASSIFY, UNIT_FEATURES), indeterminacy=ORTHOGONAL,
    promises="h is orthogonal; w_i is the image of v_C(i) under the same map, times κ/β and shifted by some vector.",
    not_promised=("where the origin of the class vectors is", "axis alignment", *_LABEL_LIMITS),
    diversity=_CLASSES)
CLASSIFY_FREE = Theorem("classify-free", "Reizinger et al. 2024, arXiv:2410.21869, Th. 1",
    side_information="a label that is signal: class or instance index",
    assumes=_CLASSIFY, indeterminacy=LINEAR,
    promises="h is linear, h(z) = A z; w_i is an affine image of v_C(i), by A⁻ᵀ; and w_i = w_j within a class. If the"
    " w_i have unit norm and d(d + 3)/2 or more classes lie in general position, A is orthogonal times a scale.",
    not_promised=("angles", "axis alignment", *_LABEL_LIMITS),
    diversity=_CLASSES)

FORGET = Theorem("forget", "anti-diversity, a proof sketch drawn from Liu et al. 2026, arXiv:2605.16412",
    side_information="a label that is a nuisance: domain, batch, body",
    assumes=(BIJECTIVE_OBSERVABLE, NUISANCE_VMF, NUISANCE_INDEPENDENT, LINEAR_ENCODER, INFORMATION_KEPT,
             OPTIMUM_REACHED), indeterminacy=BIJECTION_PER_LEVEL,
    subject="the part of z that is unaffected by the nuisance is recovered",
    promises="ẑ ⟂ e, row(M) = V^⊥, ker M = V, and ẑ = Φ_e(z), whose injectivity the sketch asserts unproved.",
    not_promised=("one map for all levels: moving from e₁ to e₂ needs Φ_e₂∘Φ_e₁⁻¹, learned from paired data",
                  "invariance because a classifier failed in training: probe afterwards, on held-out data"),
    diversity=Diversity("d_a − d_z + 1", "nuisance levels (d_z = d_a − dim V)", lambda d, k: d - k + 1,
                        k_means="d_z, the dimensions that remain of the d = d_a observed"))

# Given e, x is an injective function of z, and by the decoder also of ẑ; so each is a function of the other. And the
# optimum has I(e; ẑ) = 0, since ẑ = z reaches it.
FORGET_NONLINEAR = Theorem("forget-nonlinear", "anti-diversity, Liu et al. 2026, arXiv:2605.16412; argued here",
    side_information="a label that is a nuisance: domain, batch, body",
    assumes=(INJECTIVE_GIVEN_NUISANCE, NUISANCE_INDEPENDENT, EXACT_RECONSTRUCTION, OPTIMUM_REACHED),
    indeterminacy=BIJECTION_PER_LEVEL, subject="the part of z that is unaffected by the nuisance is recovered",
    promises="ẑ ⟂ e, and ẑ = Φ_e(z) with Φ_e invertible; all Φ_e map p(z) to the same distribution.",
    not_promised=("one map for all levels: moving from e₁ to e₂ needs Φ_e₂∘Φ_e₁⁻¹, learned from paired data",
                  "which part of x is kept, if latents are too few to reconstruct it",
                  "invariance because a classifier failed in training: probe afterwards, on held-out data"))

DICTIONARY_BLOCKS = Theorem("dictionary-blocks", "Zheng et al., Diverse Dictionary Learning, Th. 1",
    side_information="none", assumes=(*_DICTIONARY, INDEPENDENT_BLOCKS), indeterminacy=BLOCKWISE,
    promises="Intersections, complements and symmetric differences of latent index sets do not mix.",
    not_promised=("single latents inside an atomic region",
                  "one rotation of a block of several latents: it may depend on a latent that reaches more variables"))
DICTIONARY_STRUCTURE = Theorem("dictionary-structure", "Zheng et al., Diverse Dictionary Learning, Th. 2",
    side_information="none", assumes=_DICTIONARY, indeterminacy=PERMUTATION,
    subject="the dependency structure S is recovered",
    promises="The support of D_ẑ ĝ equals S up to a permutation of its columns.",
    not_promised=("the values of the latents",))
DICTIONARY_SINGLE = Theorem("dictionary-single", "Zheng et al., Diverse Dictionary Learning, Th. 3",
    side_information="none", indeterminacy=ELEMENTWISE,
    assumes=(*_DICTIONARY, INDEPENDENT_BLOCKS, DIVERSE_SUPPORT),
    promises="Every latent is recovered alone; diverse is not sparse, nearly dense structures may qualify.",
    not_promised=("linear agreement: each latent may be warped",))

_ATOMS = "the dictionary is recovered, and with it the feature activations,"
_ATOM_LIMITS = ("meaning: an atom is a direction, not a concept",
                "anything about gates such as TopK, which optimise another function: report how well seeds agree")
SPARSE_COMPLETE = Theorem("sparse-complete", "Hu and Huang 2023, NeurIPS", side_information="none", subject=_ATOMS,
    assumes=(SPARSE_COMBINATION, INDEPENDENT_ATOMS, SCATTERED_ACTIVATIONS, LEAST_VOLUME),
    indeterminacy=SCALED_PERMUTATION,
    promises="The global optimum of L1 and volume has the true atoms, in some order and at some scale.",
    not_promised=("that gradient descent finds the global optimum", *_ATOM_LIMITS),
    diversity=Diversity("d log d", "samples, times a constant, if features are Bernoulli-Gaussian",
                        lambda d, k: max(1, math.ceil(d * math.log(d)))))
SPARSE_OVERCOMPLETE = Theorem("sparse-overcomplete", "Sun and Huang 2025, ICLR", side_information="none",
    subject=_ATOMS, assumes=(SPARSE_COMBINATION, SCATTERED_ACTIVATIONS, LEAST_VOLUME), indeterminacy=SCALED_PERMUTATION,
    promises="The same holds with more atoms than dimensions, if features are strongly scattered.",
    not_promised=("that gradient descent finds the global optimum", *_ATOM_LIMITS),
    diversity=Diversity("(d²/k) log(d²/k)", "samples, times a constant",
                        lambda d, k: math.ceil(d * d / k * math.log(d * d / k)) if k <= d else 0,
                        k_means="m, the dimensions of x, of which there are fewer than atoms"))
SPARSE_ACTIVATIONS = Theorem("sparse-activations", "Donoho and Elad 2003, PNAS", side_information="a known dictionary",
    assumes=(SPARSE_COMBINATION, KNOWN_ATOMS, FEWER_THAN_SPARK, SPARSEST_ACTIVATIONS), indeterminacy=IDENTITY,
    subject="the feature activations are recovered",
    promises="No other features that are as sparse reconstruct x.",
    not_promised=("the dictionary", "that an encoder of one pass finds these features"))

AUXILIARY_ICA = Theorem("auxiliary-ica", "Hyvärinen, Sasaki, Turner 2019, AISTATS",
    side_information="u with p(z|u)", indeterminacy=ELEMENTWISE,
    assumes=(INJECTIVE_MIXING, CONDITIONAL_INDEPENDENCE, VARIABILITY, OPTIMUM_REACHED),
    promises="Every latent is recovered alone, up to an invertible function of it.",
    not_promised=("linear agreement: each latent may be warped",),
    diversity=Diversity("2d + 1", "values of u", lambda d, k: 2 * d + 1))
TCL = Theorem("tcl", "Hyvärinen, Morioka 2016, NeurIPS", side_information="segments of a time series",
    assumes=(INJECTIVE_MIXING, CONDITIONAL_INDEPENDENCE, MODULATED_SEGMENTS, OPTIMUM_REACHED),
    indeterminacy=AFFINE_OF_STATISTICS, promises="The statistics q(z_j) are recovered up to an affine map.",
    not_promised=("the sign of z_j where q is even", "axis alignment, without a linear ICA afterwards"),
    diversity=Diversity("d + 1", "segments", lambda d, k: d + 1))
IVAE = Theorem("ivae", "Khemakhem et al. 2020, AISTATS", side_information="u with p(z|u)",
    assumes=(INJECTIVE_MIXING, EXPONENTIAL_FAMILY, NATURAL_PARAMETERS, SAME_DISTRIBUTION),
    indeterminacy=AFFINE_OF_STATISTICS,
    promises="The statistics T_jl(z_j) are recovered up to an affine map.",
    not_promised=("single latents, without the paper's further conditions on T and g",),
    diversity=Diversity("dk + 1", "values of u", lambda d, k: d * k + 1,
                        k_means="the sufficient statistics per latent"))
ROEDER = Theorem("roeder", "Roeder, Metz, Kingma 2021, ICML", side_information="labels",
    assumes=(SOFTMAX_MODEL, INDEPENDENT_DIFFERENCES, SAME_DISTRIBUTION), indeterminacy=LINEAR,
    subject="the features of two fits agree",
    promises="Any two fits of one distribution have features that are linear images of each other.",
    not_promised=("that the features are the true latents: fits are compared with fits, not with ground truth",),
    diversity=Diversity("M + 1", "labels (M features)", lambda d, k: d + 1))
INTERVENTIONS = Theorem("interventions", "Ahuja et al. 2023, ICML; Squires et al. 2023, ICML",
    side_information="interventions", assumes=(PARAMETRIC_MIXING, SINGLE_INTERVENTIONS, SAME_DISTRIBUTION),
    indeterminacy=SCALED_PERMUTATION, promises="Every latent that is intervened on is recovered alone.",
    not_promised=("mixings outside the family", "latents that no intervention reaches"),
    diversity=Diversity("d", "interventions (about one per latent)", lambda d, k: d))
INTERVENTIONS_UNKNOWN = Theorem("interventions-unknown", "von Kügelgen et al. 2023, NeurIPS",
    side_information="interventions whose targets are unknown",
    assumes=(DIFFEOMORPHIC_MIXING, PAIRED_INTERVENTIONS, SAME_DISTRIBUTION), indeterminacy=ELEMENTWISE,
    promises="Every latent is recovered alone, up to an invertible function of it.",
    not_promised=("linear agreement: each latent may be warped", "data that violate the paper's genericity condition"),
    diversity=Diversity("2d", "interventions (about two per latent)", lambda d, k: 2 * d))

# Theorems assume x = g(z). With x = g(z) + ε an encoder that inverts g returns c = h(z) + δ. A linear map of c
# explains, of d white latents, the covariance of c minus that of δ, Σ_ε. Encoding x + ε' estimates both.
FEATURE_NOISE = Assumption("independent noise per feature", "mixing",
    "x = g(z) + ε, with ε independent of z, and from feature to feature")
NOISY = Weakening(FEATURE_NOISE,
    promises="the signal g(z), and the latents up to noise: R² is at most 1 − tr(Σ_c⁻¹ Σ_ε) / d.",
    not_promised=("the latents of a single sample: noise adds the covariance Σ_ε to them",
                  "anything if features share noise: every method here takes it for a latent"))

INDETERMINACIES = tuple(each for each in list(globals().values()) if isinstance(each, Indeterminacy))
THEOREMS = tuple(each for each in list(globals().values()) if isinstance(each, Theorem))
# Derived, so that no theorem can rest on an assumption that is not listed.
ASSUMPTIONS = tuple(dict.fromkeys(
    [assumption for theorem in THEOREMS for assumption in theorem.assumes] + [NOISY.assumes]))
