"""The colours: distances as the colour-blind see them, contrast, and names that the page can tell apart."""

import itertools

import numpy
import pytest
from colorspacious import cspace_convert, deltaE

from . import style

CONTENDERS = [*style.MARKERS, "other"]
LEAST_DISTANCE = 12  # in CAM02-UCS; 1 is about what the eye just tells apart side by side


def rgb(colour):
    return numpy.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255


def seen(colour, deficiency):
    if deficiency is None:
        return rgb(colour)
    space = {"name": "sRGB1+CVD", "cvd_type": deficiency, "severity": 100}
    return numpy.clip(cspace_convert(rgb(colour), space, "sRGB1"), 0, 1)


def contrast(one, other):
    """As WCAG 2 defines it."""

    def luminance(colour):
        part = rgb(colour)
        return numpy.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4) @ [
            0.2126,
            0.7152,
            0.0722,
        ]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", style.THEMES)
@pytest.mark.parametrize("deficiency", [None, "deuteranomaly", "protanomaly", "tritanomaly"])
def test_contenders_differ_for_everyone(theme, deficiency):
    colours = style.THEMES[theme]
    for one, other in itertools.combinations(CONTENDERS, 2):
        distance = deltaE(
            seen(colours[one], deficiency), seen(colours[other], deficiency), input_space="sRGB1"
        )
        assert distance >= LEAST_DISTANCE, (one, other)


@pytest.mark.parametrize("theme", style.THEMES)
def test_contrast(theme):
    colours = style.THEMES[theme]
    for ground in ("ground", "band"):
        for mark in [*CONTENDERS, "limit"]:
            assert contrast(colours[mark], colours[ground]) >= (3 if ground == "ground" else 2.75), (
                mark,
                ground,
            )
    for text in ("text", "muted", "headlane"):
        assert contrast(colours[text], colours["ground"]) >= 4.5, text


def test_every_colour_of_the_light_theme_has_one_name():
    assert len(set(style.LIGHT.values())) == len(style.LIGHT)
    assert style.LIGHT.keys() == style.DARK.keys()


def test_markers_and_fills_are_the_second_cue():
    names = [
        "PyTorch mm",
        "BLIS",
        "OpenBLAS",
        "OpenBLAS (SkylakeX)",
        "BLIS (skx)",
        "MKL",
        "NumPy",
        "new one",
        "newer one",
    ]
    names += [
        "oneDNN prepacked",
        "ONNX Runtime",
        "ONNX Runtime prepacked",
        "OpenVINO",
        "headlane (Python)",
        "headlane prepacked",
        "headlane prepacked (Python)",
        "headlane",
    ]
    looks = style.looks(names)
    assert next(iter(looks)) == "headlane"
    assert looks["headlane"].colour == "headlane"
    assert looks["headlane"].fill == "full"
    assert len({(look.marker, look.fill) for look in looks.values()}) == len(names)


@pytest.mark.parametrize(
    ("name", "family"),
    [("OpenBLAS", "openblas"), ("BLIS (skx)", "blis"), ("NumPy (OpenBLAS)", "numpy"), ("XNNPACK", "other")],
)
def test_family(name, family):
    assert style.family(name) == family
