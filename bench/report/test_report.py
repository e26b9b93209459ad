"""From JSON to the page: the findings, the numbers in the figures, missing data, and the page as a browser reads it."""

import json
import re

import html5lib
import pytest

from . import data, figures, load, page, summary, tables

MACHINE = {"cpu": "Test CPU", "cores": 2, "os": "Debian", "compiler": "GCC 12"}


def limits(threads):
    peaks = {"avx512": 200.0, "avx2": 100.0, "scalar": 12.5}
    return [
        {"isa": isa, "threads": t, "fma_gflops": peak * t, "read_gbps": {"16384": 400.0, "268435456": 30.0},
         "copy_gbps": {"1048576": 50.0}}
        for t in threads for isa, peak in peaks.items()
    ]  # fmt: skip


def entry(op, case, contender, seconds, threads=1, isa=None, spread=0.01, **more):
    result = {
        "op": op,
        "case": case,
        "contender": contender,
        "seconds": seconds,
        "threads": threads,
        "isa": isa,
    }
    result |= {"low": seconds * (1 - spread), "high": seconds * (1 + spread)}
    result |= {"samples": 9, "calls_per_sample": 5}
    result |= {"flops": 2e9, "bytes": 1e8, "limit": {"kind": "fma", "seconds": 0.01}, "error": 0.5}
    return result | {"error_unit": "eps·Σ|a||b|"} | more


def gemm():
    """headlane is ahead on the first shape, level on the second, behind on the third."""
    rows = []
    for case, peer in (("8x8x8", 0.02), ("16x16x16", 0.0125), ("32x32x32", 0.01)):
        rows += [entry("gemm", case, "headlane", 0.0125, isa="avx512", spread=0.02)]
        rows += [entry("gemm", case, "headlane", 0.1, isa="scalar", limit={"kind": "fma", "seconds": 0.08})]
        rows += [entry("gemm", case, "MKL", peer, error=2.0), entry("gemm", case, "BLIS", 0.05)]
        rows += [entry("gemm", case, "oneDNN prepacked", 0.01)]
        rows += [entry("gemm", case, "headlane prepacked", 0.008, isa="avx512")]
    return rows


def attention(threads=(1, 2)):
    return [
        entry("attention", f"L={length}{' causal' * causal}", name, seconds, t,
              "avx512" if name == "headlane" else None, flops=4.0 * length**2,
              shape={"batch": 1, "heads": 8, "q_length": length, "kv_length": length, "head_dim": 64,
                     "causal": causal, "mask": None})
        for t in threads for length in (16, 64) for causal in (False, True)
        for name, seconds in (("headlane", 0.02), ("PyTorch SDPA", 0.03))
    ]  # fmt: skip


def run(results, **more):
    names = dict.fromkeys((row["contender"], row["isa"]) for row in results)
    contenders = [
        {"name": name, "isa": isa, "version": "1 <b>&", "route": "C++", "prepacked": "prepacked" in name}
        for name, isa in names
    ]
    machine = MACHINE | {"limits": limits(sorted({row["threads"] for row in results}))}
    result = {"schema": load.SCHEMA, "headlane": "0.1.0", "commit": "abc", "date": "2026-01-02T03:04:05Z"}
    return result | {"machine": machine, "contenders": contenders, "results": results} | more


@pytest.fixture
def read(tmp_path):
    """Writes each run to a file of its own and loads them all."""

    def read(*runs):
        paths = []
        for at, content in enumerate(runs):
            paths.append(tmp_path / f"{at}.json")
            paths[-1].write_text(json.dumps(content), encoding="utf-8")
        return load.load(paths)

    return read


def drawing(report, name):
    figure = next(figure for figure in figures.build(report) if figure.name == name)
    with page.drawn(figure, "light", False) as canvas:
        canvas.draw_without_rendering()
        return figure, canvas


def points(axes):
    return [(float(x), float(y)) for line in axes.lines for x, y in zip(*line.get_data(), strict=True)]


def test_findings(read):
    report = read(run(gemm()))
    outcomes = {c.ours.case: (c.outcome, round(c.ratio, 3)) for c in report.comparisons("gemm", 1)}
    assert outcomes == {"8x8x8": ("ahead", 1.6), "16x16x16": ("level", 1.0), "32x32x32": ("behind", 0.8)}
    line = summary.lines(report)[0]
    assert line.mean == pytest.approx(data.geometric_mean([1.6, 1.0, 0.8]))
    assert line.mean_prepacked == pytest.approx(1.25)
    assert line.share == pytest.approx(0.8)
    assert (
        summary.counts_text(line.comparisons)
        == "ahead of the best peer on 1 of 3 shapes, level on 1, behind on 1"
    )
    assert [c.ours.case for c in summary.not_ahead(report)] == ["32x32x32", "16x16x16"]


def test_prepacked_is_compared_on_the_same_route(read):
    extra = [
        entry("gemm", "8x8x8", "headlane prepacked (Python)", 0.02, isa="avx512"),
        entry("gemm", "8x8x8", "OpenVINO prepacked", 0.005),
    ]
    made = run(gemm() + extra)
    for contender in made["contenders"]:
        contender["route"] = "Python" if contender["name"] in {row["contender"] for row in extra} else "C++"
    assert read(made).comparisons("gemm", 1)[0].prepacked_ratio == pytest.approx(0.25)
    alone = read(run([row for row in gemm() if row["contender"] != "headlane prepacked"]))
    assert alone.comparisons("gemm", 1)[0].prepacked_ratio is None


def test_speed_has_the_numbers(read):
    figure, canvas = drawing(read(run(gemm())), "speed-gemm")
    axes = canvas.axes[0]
    assert {text.get_text() for text in axes.texts} == {"1.60×", "1.00×", "0.80×"}
    drawn = {round(x, 1) for x, _ in points(axes)}
    assert {160.0, 100.0, 200.0, 40.0} <= drawn  # headlane, MKL, the limit and oneDNN, BLIS
    assert 20.0 not in drawn  # the scalar build is not among the peers
    assert "ahead of the best peer on 1 of 3 shapes" in figure.title


def test_isas_scaling_error_roofline_have_the_numbers(read):
    report = read(run(gemm()), run(attention()))
    figure, canvas = drawing(report, "isas-gemm")
    assert "AVX-512 is 8.0 times as fast as scalar, at 80\u00a0%" in figure.title
    assert sorted({round(bar.get_width(), 2) for bar in canvas.axes[0].patches}) == [0.8]
    figure, canvas = drawing(report, "scaling")
    assert len(canvas.axes) == 4
    assert (16.0, pytest.approx(4 * 16**2 / 0.02 / 1e9)) in points(canvas.axes[0])
    assert "plain 4 of 4, causal 4 of 4" in figure.title
    _, canvas = drawing(report, "error-gemm")
    assert (pytest.approx(100), 2.0) in points(canvas.axes[0])
    _, canvas = drawing(report, "roofline")
    assert (20.0, pytest.approx(160)) in points(canvas.axes[0])
    assert any(text.get_text() == "AVX-512 200 " for text in canvas.axes[0].texts)


def test_table_holds_every_measurement(read):
    table = tables.results(read(run(gemm())), "gemm")
    assert len(table.rows) == len(gemm())
    assert all(len(row) == len(table.head) for row in table.rows)
    mkl = next(row for row in table.rows if row[:3] == ["8×8×8", "1", "MKL"])
    against = {row[2]: row[8] for row in table.rows if row[0] == "8×8×8"}
    assert against["oneDNN prepacked"] == "1.25×"
    assert mkl[4:9] == ["20 ms", "19.8 ms – 20.2 ms", "100", "50\u00a0% (fma)", "1.60×"]


def test_the_latest_of_two_runs_counts(read):
    old = run([entry("gemm", "8x8x8", "headlane", 0.5, isa="avx512")], date="2025-01-01T00:00:00Z")
    report = read(run(gemm()), old)
    assert report.comparisons("gemm", 1)[0].ours.seconds == 0.0125


def test_cases_that_were_timed_again_beside_options_count_once(read):
    options = [
        entry("attention_options", case, name, 0.02, isa="avx512" if name == "headlane" else None)
        for case in ("L=16", "L=16 8 heads on 2")
        for name in ("headlane", "PyTorch SDPA")
    ]
    report = read(run(attention() + options))
    assert [c.ours.case for c in report.comparisons("attention_options", 1)] == ["L=16 8 heads on 2"]
    assert "Attention with options" in page.html(report)


T5_SHAPE = {"model": "t5-small", "batch": 2, "input": 16, "tokens": 64}


def models():
    """As ./dev peers models: T5 is ahead of float32 peers, behind int8; MiniLM is level, ahead on sentences."""
    t5 = {"shape": T5_SHAPE, "error_unit": "share of tokens that differ", "against": "transformers"}
    minilm = {"shape": {"batch": 1, "length": 16}, "error_unit": "eps·rms(row of y)", "against": "float64"}
    sentences = minilm | {"shape": {"batch": 64}}
    t5_seconds = {"headlane": 0.064, "transformers": 0.128, "CTranslate2": 0.08, "CTranslate2 int8": 0.032}
    t5_seconds["headlane int8"] = 0.016
    minilm_seconds = {"headlane": 0.004, "headlane int8": 0.001, "transformers compiled": 0.004}
    results = [
        entry(op, case, name, took, isa="avx512" if name == "headlane" else None, **more)
        for op, case, seconds, more in (
            ("t5", "t5-small, batch 2", t5_seconds, t5 | {"error": 0.0}),
            ("minilm", "1x16", minilm_seconds, minilm),
            ("sentences", "64 sentences", {"headlane": 0.1, "OpenVINO by length": 0.2}, sentences),
        )
        for name, took in seconds.items()
    ]
    results[3]["error"] = 0.25
    loading = [
        {"contender": "headlane", "threads": 1, "model": "t5-base", "seconds": 0.5, "read": 0.2, "pack": 0.1},
        {"contender": "CTranslate2", "threads": 1, "model": "t5-base", "seconds": 0.7},
    ]
    return run(results, loading=loading)


@pytest.mark.parametrize("schema", [load.SCHEMA, load.OLD_SCHEMA])
def test_models_have_tokens_or_sentences_per_second_and_times(read, schema):
    report = read(models() | {"schema": schema})
    assert report.ops() == ["t5", "minilm", "sentences"]
    assert report.select("t5")[0].speed == pytest.approx(2 * 64 / 0.064)
    assert report.select("minilm")[0].speed == pytest.approx(16 / 0.004)
    assert report.select("sentences")[0].speed == pytest.approx(64 / 0.1)
    (comparison,) = report.comparisons("t5", 1)
    assert comparison.ours.contender == "headlane"
    assert (comparison.best.contender, comparison.ratio) == ("CTranslate2", pytest.approx(1.25))
    figure, canvas = drawing(report, "speed-t5")
    assert {1000.0, 1600.0, 2000.0, 4000.0, 8000.0} <= {round(x, 6) for x, _ in points(canvas.axes[0])}
    assert "int8" in figure.caption
    rows = {row[2]: row for row in tables.results(report, "t5").rows}
    assert rows["headlane"][4:7:2] == ["64 ms", "2,000"]
    assert (rows["CTranslate2 int8"][8], rows["CTranslate2 int8"][10]) == ("0.50×", "25\u00a0%")
    assert [row[3:] for row in tables.loading(report).rows] == [
        ["500 ms", "200 ms", "100 ms"],
        ["700 ms", "–", "–"],
    ]
    assert not [figure for figure in figures.build(report) if figure.name == "error-t5"]
    assert "headlane int8" not in {row.contender for row in figures.errors.measured(report, "minilm")}


def test_layers_models_and_memory_have_sections(read):
    layers = [entry("layers", "encoder L=16", name, 0.01, isa=None) for name in ("headlane", "PyTorch nn")]
    memory = [entry("memory", "L=65536 causal", "headlane", 9.0, isa="avx512", memory=3 << 20)]
    report = read(run(gemm()), run(layers), models(), run(memory))
    assert tables.memory(report).rows[0][:5] == ["L=65536 causal", "1", "headlane", "3.0 MiB", "9 s"]
    text = page.html(report)
    for section in ("gemm", "layers", "t5", "minilm", "sentences", "loading", "memory"):
        assert f'<section id="{section}">' in text
    html5lib.HTMLParser(strict=True).parse(text)


MISSING = {
    "one operation": gemm(),
    "one thread count": attention(threads=(2,)),
    "headlane alone": [row for row in gemm() if row["contender"] == "headlane"],
    "peers alone": [row for row in gemm() if row["contender"] != "headlane"],
    "one row": gemm()[:1],
    "no limit, no error, no flops": [row | {"limit": None, "error": None, "flops": None} for row in gemm()],
    "an error of 0": [row | {"error": 0.0} for row in gemm()],
    "an operation that is new here": [row | {"op": "layer_norm"} for row in gemm()],
    "unknown contenders": [entry("decode", "9 keys", name, 0.1) for name in ("headlane", "A", "B <script>")],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("what", MISSING)
def test_missing_data_give_a_smaller_page(read, what):
    report = read(run(MISSING[what]))
    for figure in figures.build(report):
        with page.drawn(figure, "dark", True) as canvas:
            assert canvas.axes
            assert all(axes.has_data() for axes in canvas.axes)
    html5lib.HTMLParser(strict=True).parse(page.html(report))


def test_page_is_well_formed_and_alone(read):
    text = page.html(
        read(
            run(gemm(), failures=[{"contender": "A & B", "case": None, "reason": "<none>"}]), run(attention())
        )
    )
    html5lib.HTMLParser(strict=True).parse(text)
    assert len(text) < 3e6
    assert not re.search(r"<(script|link|iframe|img|object)\b|@import|url\((?!#)", text)
    assert all(target.startswith("#") for target in re.findall(r'\b(?:href|src)="([^"]*)"', text))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {target[1:] for target in re.findall(r'href="(#[^"]+)"', text)} <= set(ids)
    assert "1 &lt;b&gt;&amp;" in text
    assert "A &amp; B" in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 2 * text.count("<figcaption>")
    for drawing in drawings:
        assert re.search(r'role="img" aria-label="[^"]{40,}"', drawing)
        assert not re.search(r"(?:fill|stroke): #", drawing)  # every colour follows the theme


def test_pictures(read, tmp_path):
    made = list(page.pictures(read(run(gemm())), tmp_path))
    assert {path.name for path in made} >= {"overview-light.png", "overview-dark.png", "speed-gemm-light.png"}
    assert all(path.stat().st_size > 10_000 for path in made)


def test_bad_files_are_named(tmp_path, read):
    path = tmp_path / "bad.json"
    for content in ("{", "[]", '{"schema": "other"}', json.dumps({"schema": load.SCHEMA})):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(load.BadFile, match=r"bad\.json"):
            load.load([path])
    with pytest.raises(load.BadFile, match="different machines"):
        read(run(gemm()), run(gemm(), machine=MACHINE | {"cpu": "Other CPU", "limits": []}))
