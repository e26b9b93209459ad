"""Colours, markers and sizes. A colour has a name and a value for each theme: the page uses the names as
CSS variables, so one drawing serves both. test_style.py checks contrast, and distances for the
colour-blind."""

from dataclasses import dataclass

LIGHT = {
    "ground": "#ffffff",
    "text": "#1b1f24",
    "muted": "#57606b",
    "grid": "#dfe3e8",
    "band": "#f1f3f6",
    "limit": "#40474f",
    "headlane": "#0b57d0",
    "torch": "#a45818",
    "onednn": "#12a2a0",
    "onnx": "#a47de4",
    "openvino": "#1b4303",
    "mkl": "#ee3b7e",
    "openblas": "#c08801",
    "blis": "#770c57",
    "numpy": "#6d5144",
    "other": "#0a0c10",
}
DARK = {
    "ground": "#14171c",
    "text": "#e8eaed",
    "muted": "#a3abb6",
    "grid": "#30363e",
    "band": "#1e232a",
    "limit": "#c3cad3",
    "headlane": "#6ea8ff",
    "torch": "#f5330f",
    "onednn": "#8ef7f4",
    "onnx": "#8a59eb",
    "openvino": "#b5d7aa",
    "mkl": "#cc609b",
    "openblas": "#f8f04a",
    "blis": "#edad43",
    "numpy": "#977a63",
    "other": "#aeaeba",
}
THEMES = {"light": LIGHT, "dark": DARK}

MARKERS = {
    "headlane": "o",
    "torch": "s",
    "onednn": "D",
    "onnx": "^",
    "openvino": "v",
    "mkl": "P",
    "openblas": "X",
    "blis": "<",
    "numpy": ">",
}
PREPACKED_MARKER = "*"  # of headlane with prepacked weights
SPARE_MARKERS = "phd8H"
ISA_TINTS = (
    1,
    0.42,
    0.1,
    0.1,
    0.1,
)  # of headlane's colour; the widest instruction set is solid, the others ever paler

WIDE, NARROW = 1040, 358  # pixels; a phone is 390 wide and the page keeps 16 at either side
FONT = {False: 12.5, True: 12}
PIXELS_PER_INCH = 72  # so that a point of matplotlib's is a pixel of the page


def rc(theme, narrow, salt):
    colour = THEMES[theme]
    return {
        "font.family": "DejaVu Sans",  # wider than most: in a browser's own font labels get shorter
        "font.size": FONT[narrow],
        "axes.titlesize": FONT[narrow] + 0.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": 8,
        "axes.labelsize": FONT[narrow],
        "xtick.labelsize": FONT[narrow] - 0.5,
        "ytick.labelsize": FONT[narrow] - 0.5,
        "legend.fontsize": FONT[narrow],
        "legend.frameon": False,
        "figure.dpi": PIXELS_PER_INCH,
        "figure.facecolor": colour["ground"],
        "axes.facecolor": "none",
        "axes.edgecolor": colour["grid"],
        "axes.labelcolor": colour["muted"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "text.color": colour["text"],
        "xtick.color": colour["grid"],
        "ytick.color": colour["grid"],
        "xtick.labelcolor": colour["muted"],
        "ytick.labelcolor": colour["text"],
        "grid.color": colour["grid"],
        "grid.linewidth": 0.8,
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
    }


ALIASES = {"transformers": "torch"}  # it runs on PyTorch


def family(name):
    """The product that a contender's name says first: PyTorch's mm and PyTorch's SDPA share a colour."""
    for alias, key in ALIASES.items():
        name = name.replace(alias, key)
    places = [(name.lower().find(key), key) for key in MARKERS if key in name.lower()]
    if not places:
        return "other"
    place = min(places)[0]
    return max((key for at, key in places if at == place), key=len)


@dataclass(frozen=True)
class Look:
    """How one contender is drawn: filled marker for the first of its family, hollow and half filled for the next;
    headlane with prepacked weights has a marker of its own."""

    name: str
    colour: str
    marker: str
    fill: str

    def marks(self, theme, size):
        colour = THEMES[theme]
        return {
            "marker": self.marker,
            "color": colour[self.colour],
            "markerfacecolor": colour["ground"] if self.fill == "none" else colour[self.colour],
            "markerfacecoloralt": colour["ground"],
            "markeredgecolor": colour[self.colour],
            "markeredgewidth": 1.4 if self.fill != "full" else 0.6,
            "fillstyle": "full" if self.fill == "none" else self.fill,
            "markersize": size * (1.15 if self.colour == "headlane" else 1),
        }


def looks(names):
    """{name: Look}, headlane first, then in the order given; distinct among these names."""
    result, members, spare = {}, {}, iter(SPARE_MARKERS * 4)
    for name in sorted(
        dict.fromkeys(names), key=lambda name: (family(name) != "headlane", name != "headlane")
    ):
        kind = family(name)
        if kind == "other":
            result[name] = Look(name, kind, next(spare), "full")
        else:
            fills = ("full", "none", "left", "right")
            own_prepacked = kind == "headlane" and "prepacked" in name
            marker = PREPACKED_MARKER if own_prepacked else MARKERS[kind]
            count = members[marker] = members.get(marker, -1) + 1
            result[name] = Look(name, kind, marker, fills[count % len(fills)])
    return result
