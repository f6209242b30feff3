"""Renderers are mixings: pure functions, smooth in what they draw, and every process can be seen through them."""

import math

import numpy as np
import pytest
import torch
from pindown_papers.simulations import Confounded, Instances, RobotArm, Sensors, ShapeNuisance, SomeChange, Sprites
from pindown_papers.simulations.renderers import (
    FAR,
    RAYS_AT_ONCE,
    Hit,
    Rays,
    Room,
    Surface,
    capsule,
    cube,
    cylinder,
    dot,
    painted,
    reciprocals,
    sphere,
    traversals,
)

from pindown import theory
from pindown.data import as_source
from pindown.errors import InputError
from pindown.networks.spaces import Box, Reals, Sphere
from pindown.simulate import Clusters, Nuisance, Pairs
from pindown.simulate.distributions import Truncated, Uniform, VonMisesFisher, laplace, normal
from pindown.simulate.images import contact_sheet, nearest_traversals

RENDERERS = {
    "room": Room(16),
    "room with light and camera": Room(16, factors=[factor.name for factor in Room.known]),
    "room of capsules": Room(16, factors=("size", "azimuth"), fixed={"shape": 3}),
    "sprites": Sprites(16),
    "three sprites": Sprites(16, n_sprites=3, factors=("x", "y", "x_2", "hue_3", "ground")),
    "arm": RobotArm(16),
    "arm with light": RobotArm(16, factors=[factor.name for factor in RobotArm.known]),
}
each = pytest.mark.parametrize("renderer", RENDERERS.values(), ids=RENDERERS)


def points(renderer, n=6, seed=0, dtype=torch.float64):
    return torch.rand(n, renderer.d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@each
def test_images_are_colours_of_the_size_requested(renderer):
    images = renderer(points(renderer))
    assert images.shape == (6, 3, 16, 16)
    assert images.dtype == torch.float64
    assert images.isfinite().all()
    assert images.min() >= 0
    assert images.max() <= 1
    assert images.flatten(1).std(1).min() > 0.01


@each
def test_a_image_depends_on_its_latents_alone(renderer):
    z = points(renderer)
    images = renderer(z)
    torch.testing.assert_close(renderer(z[2:3]), images[2:3])
    torch.testing.assert_close(renderer(z.flip(0)), images.flip(0))
    torch.testing.assert_close(renderer(z.float()).double(), images, atol=0.05, rtol=0)


@each
def test_every_factor_is_seen_and_a_small_step_is_a_small_change(renderer):
    z = points(renderer, 24)
    images = renderer(z)
    for j, factor in enumerate(renderer.factors):
        other = z.clone()
        other[:, j] = (z[:, j] + 0.5) % 1
        changed = (renderer(other) - images).abs().flatten(1).mean(1)
        assert changed.median() > 1e-3, factor.name
        if not factor.categorical:
            near = z.clone()
            near[:, j] = (z[:, j] - 1e-5).abs()
            assert (renderer(near) - images).abs().mean() < 1e-3 * changed.mean() + 1e-5, factor.name


@each
def test_constants_follow_the_latents_to_their_device(renderer):
    images = renderer(points(renderer).to("meta"))  # a device on which nothing from another one can be used
    assert images.device.type == "meta"
    assert images.shape == (6, 3, 16, 16)


def test_supersampled_images_tend_to_a_limit():
    z = points(Room(16), 8)
    coarse, fine, finest = (Room(16, samples=samples)(z) for samples in (1, 3, 6))
    assert (fine - finest).abs().mean() < 0.4 * (coarse - finest).abs().mean()


def test_a_block_of_images_is_drawn_in_parts(monkeypatch):
    z = points(Sprites(16), 7)
    whole = Sprites(16)(z)
    monkeypatch.setitem(RAYS_AT_ONCE, "cpu", 2 * 16**2)
    torch.testing.assert_close(Sprites(16)(z), whole)


def test_domains_are_ways_to_say_the_same():
    share = torch.tensor([[0.2, 0.7]], dtype=torch.float64)
    box, ball, reals = (Sprites(16, factors=("x", "y"), domain=d) for d in (Box(-1, 3), Sphere(), Reals()))
    same = Sprites(16, factors=("x", "y"))(share)
    torch.testing.assert_close(box(share * 4 - 1), same)
    torch.testing.assert_close(ball(share * 2 - 1), same)
    torch.testing.assert_close(reals(torch.special.ndtri(share)), same)


def test_a_sprite_is_where_its_latents_say():
    x = torch.linspace(0, 1, 5)
    images = Sprites(32, factors=("x",), fixed={"y": 0.0, "shape": 1, "rotation": 0.0})(x[:, None])
    weight = images[:, 0] - images[:, 0].min()
    columns = (torch.arange(32) + 0.5) / 32 * 2 - 1
    centre = (weight.sum(1) * columns).sum(1) / weight.sum((1, 2))
    torch.testing.assert_close(centre, -0.6 + 1.2 * x, atol=0.01, rtol=0)


def test_a_square_covers_its_area():
    image = Sprites(64, factors=("rotation",), fixed={"shape": 0, "size": 0.3, "x": 0.0, "y": 0.0})(
        torch.tensor([[0.0], [0.4]])
    )
    covered = ((image[:, 0] - 0.04) / 0.91).mean((1, 2)) * 4
    torch.testing.assert_close(covered, torch.full((2,), (2 * 0.85 * 0.3) ** 2), atol=0.003, rtol=0)


def place(*values):
    """Three coordinates of one image."""
    return tuple(torch.tensor([[value]], dtype=torch.float64) for value in values)


def rays(start, *directions):
    d = tuple(torch.tensor([parts], dtype=torch.float64) for parts in zip(*directions, strict=True))
    return Rays(start, d, reciprocals(d), dot(d, d), lambda v: dot(v, d))


@pytest.mark.parametrize("long", [1.0, 2.0])
def test_rays_meet_solids_where_geometry_says(long):
    seen = rays(place(0.0, 0.5, 5.0), (0.0, 0.0, -long), (0.0, long, 0.0))  # ahead, and up
    one, centre, low, high = torch.ones(1, 1).double(), place(0, 0.5, 0), place(0, -0.5, 0), place(0, 1.5, 0)
    hits = [sphere(seen, centre, one), cube(seen, centre, one), cylinder(seen, one, 2 * one)]
    for hit in [*hits, capsule(seen, low, high, one)]:
        assert hit.distance[0, 0].item() == pytest.approx(4.0 / long)
        assert hit.distance[0, 1] == FAR
        for axis, part in zip(torch.eye(3).tolist(), (0.0, 0.0, 1.0), strict=True):
            assert hit.facing(place(*axis))[0, 0].item() == pytest.approx(part)


def test_what_is_nearest_is_painted_in_its_own_light():
    origin = place(0.0, 0.0, 0.0)
    behind, ahead = (Hit(torch.tensor([[far]]).double(), lambda v: v[2]) for far in (4.0, 2.0))
    red, green = (torch.tensor(colour).double()[None, :, None] for colour in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))

    def none_passes(light):
        return torch.zeros(1, 1).double()

    near, far, view = Surface(ahead, green, shaded=False), Surface(behind, red), rays(origin, (0.0, 0.0, -1.0))
    for surfaces in ([near, far], [far, near]):
        seen = painted(view, surfaces, origin, none_passes)
        torch.testing.assert_close(seen, (0.42 + 0.62) * green)  # the lamp is at the eye, and no shadow falls on it
    torch.testing.assert_close(painted(view, [far], origin, none_passes), 0.42 * red)


def test_the_nearest_images_along_a_latent_show_what_it_stands_for():
    z = points(Sprites(16, factors=("x", "ground")), 400)
    images = Sprites(16, factors=("x", "ground"))(z)
    sheet = nearest_traversals(z.numpy(), images, steps=6).astype(float)  # (2 × 16 + 2, 6 × 16 + 5 × 2, 3)
    tiles = [[sheet[18 * i : 18 * i + 16, 18 * k : 18 * k + 16, 0] for k in range(6)] for i in range(2)]
    grounds = [[tile[0, 0] for tile in row] for row in tiles]
    assert np.ptp(grounds[0]) < 40 < 80 < np.ptp(grounds[1])  # of 255: the second code is the ground
    centres = [
        (tile - tile[0, 0]).clip(0).sum(0) @ np.arange(16) / (tile - tile[0, 0]).clip(0).sum() for tile in tiles[0]
    ]
    assert (np.diff(centres) > 0).all()
    grey = nearest_traversals(z.numpy(), 5 * images[:, :1] - 1, steps=6)
    assert (grey[..., 0] == grey[..., 2]).all()


# Simulations.


def test_every_process_can_be_seen_through_a_renderer():
    vectors = Sphere()(torch.tensor([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]]))
    names = ("object_hue", "size", "azimuth")
    ball, reals = Room(16, factors=names, domain=Sphere()), Room(16, factors=(*names, "light"), domain=Reals())
    clusters = Clusters(vectors, VonMisesFisher(10.0), ball)
    processes = [
        Pairs(Uniform(3, Box()), Truncated(laplace(0.1)), Room(16, factors=names)),
        Pairs(Uniform(3, Box()), Truncated(normal(0.1)), Room(16, factors=names)),
        Pairs(Uniform(3), VonMisesFisher(20.0), ball),
        Pairs(Uniform(3, Box()), SomeChange(), Room(16, factors=names)),
        clusters,
        Instances(clusters, n_instances=4),
        Nuisance(clusters),
        ShapeNuisance(torch.tensor([[1.0], [3.0]]), reals),
        Confounded(torch.eye(3), torch.tensor([[-2.0], [2.0]]), torch.ones(3, 2), reals),
    ]
    for process in [*processes, Sensors(processes[0], (1.0, 0.5), (0.0, 0.2), (0.0, 0.1))]:
        sample = process.sample(5, random_state=0)
        assert sample.x.shape == (5, 3, 16, 16)
        assert sample.z.shape == (5, process.d)
        assert theory.DIFFEOMORPHIC_MIXING not in process.assumptions
        assert as_source(process).shape == (3, 16, 16)


def test_a_nuisance_is_light():
    room = Room(16, factors=("object_hue", "size", "azimuth", "brightness"), domain=Reals())
    process = Confounded(torch.zeros(1, 3), torch.tensor([[-2.0], [2.0]]), torch.ones(1, 2), room)
    sample = process.sample(200, random_state=0)
    dark, bright = (sample.x[sample.u == e].mean().item() for e in (0, 1))
    assert bright > 1.3 * dark


# Sheets.


def test_traversals_have_a_sample_for_each_latent():
    arm = RobotArm(16, factors=("yaw", "elbow"))
    sheet = traversals(arm, torch.tensor([0.5, 0.0]), steps=4)
    assert sheet.shape == (34, 70, 3)
    expected = contact_sheet(arm(torch.tensor([[0.5, 0.0]])))
    np.testing.assert_array_equal(sheet[18:34, :16], expected)


# Errors.

BAD = [
    ("size", lambda: Room(2)),
    ("factors", lambda: Room(16, factors=("sise",))),
    ("factors", lambda: Room(16, factors=("size", "size"))),
    ("factors", lambda: Room(16, factors=("size",), fixed={"size": 1.0})),
    ("fixed", lambda: Room(16, fixed={"colour": 1.0})),
    *(
        ("fixed", lambda bad=bad: Room(8, factors=("size",), fixed={"shape": bad}))
        for bad in (7, "cube", -1, 1.5, math.nan, None)
    ),
    *(
        ("fixed", lambda bad=bad: Room(8, factors=("size",), fixed={"wall_hue": bad}))
        for bad in (math.nan, math.inf, "red", [0.1])
    ),
    ("fixed", lambda: Sprites(8, n_sprites=2, factors=("x",), fixed={"shape_2": 3})),
    ("n_sprites", lambda: Sprites(16, n_sprites=0)),
    ("z", lambda: Room(16)(torch.rand(3, 2))),
    ("z", lambda: traversals(Sprites(8), torch.zeros(3))),
    ("steps", lambda: traversals(Sprites(8), steps=1)),
]


@pytest.mark.parametrize(("argument", "make"), BAD)
def test_bad_input_names_the_argument(argument, make):
    with pytest.raises(InputError) as error:
        make()
    assert error.value.argument == argument


@pytest.mark.parametrize("make", [lambda: Room(16, domain="box"), lambda: Room(8)(np.zeros((2, 6)))])
def test_a_wrong_type_raises_a_type_error(make):
    with pytest.raises(TypeError):
        make()


def test_fixed_factors_may_be_any_number():
    room = Room(8, factors=("size",), fixed={"shape": np.int64(1), "wall_hue": torch.tensor(0.25), "azimuth": 90})
    values = room.values(torch.rand(2, 1))
    assert [values[name][0].item() for name in ("shape", "wall_hue", "azimuth")] == [1.0, 0.25, 90.0]
