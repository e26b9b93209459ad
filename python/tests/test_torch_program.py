"""python -m headlane.torch: programs that know nothing of headlane."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
from test_torch_models import SMALL  # noqa: E402

PROGRAM = """
import sys, torch, transformers
transformers.logging.set_verbosity_error()
torch.manual_seed(3)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{small!r})).eval()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
ids = torch.arange(3, 21).view(2, 9)
mask = torch.ones_like(ids)
print(sys.argv[1:], model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False).tolist())
model.train()
weight = model.lm_head.weight
before = weight.detach().clone()
model(ids, labels=ids).loss.backward()
optimizer.step()
print("trained", bool((weight != before).any()), weight is model.lm_head.weight)
with torch.no_grad():
    print("again", model.eval()(ids).logits.isfinite().all().item())
"""


@pytest.mark.parametrize("form", ["script", "module"])
def test_a_program_that_knows_nothing(tmp_path, form):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("{small!r}", repr(SMALL)))
    environment = {**os.environ, "HEADLANE_TORCH": "report"}
    call = ["-m", "program"] if form == "module" else [str(path)]

    def output(*prefix):
        command = [sys.executable, *prefix, *call, "one", "--two"]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=300
        )

    expected, result = output(), output("-m", "headlane.torch")
    assert result.stdout == expected.stdout
    assert "trained True True" in result.stdout
    assert "LlamaForCausalLM:\nComputed by headlane:" in result.stderr
    assert "LlamaForCausalLM: restored, since it is trained" in result.stderr
    assert "leaked" not in result.stderr


def outputs(tmp_path, text, *call):
    """What Python and python -m headlane.torch print of the same program, in a folder with a link to it."""
    (tmp_path / "inner").mkdir(exist_ok=True)
    (tmp_path / "inner" / "program.py").write_text(text)
    (tmp_path / "inner" / "beside.py").write_text("NAME = 'beside'\n")
    (tmp_path / "inner" / "__main__.py").write_text("import beside\n" + text)
    if not (tmp_path / "link.py").exists():
        (tmp_path / "link.py").symlink_to("inner/program.py")
    for prefix in ([], ["-m", "headlane.torch"]):
        command = [sys.executable, *prefix, *call]
        yield subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
        ).stdout


@pytest.mark.parametrize("call", ["link.py", "inner", "-m inner.program"])
def test_what_a_program_is_given(tmp_path, call):
    text = (
        "import sys\nif __package__ != 'inner': import beside; print(beside.NAME)\n"
        "print(sys.argv, __name__, __file__, __package__, __spec__ and __spec__.name, sys.path[:2])\n"
        "print(__loader__.__class__, __doc__, sys.modules['__main__'].__dict__ is globals())\n"
    )
    expected, result = outputs(tmp_path, text, *call.split(), "--", "x", "--", "--weights")
    assert "'--', 'x', '--', '--weights'" in expected
    assert result == expected


def test_a_program_behind_its_last_line(tmp_path):
    """Its classes are still found, by threads and by functions that run at the exit."""
    text = (
        "import atexit, pickle, threading\nclass Thing: pass\n"
        "def work(): print(type(pickle.loads(pickle.dumps(Thing()))).__name__)\n"
        "def late():\n    threading.main_thread().join()\n    work()\n"
        "threading.Thread(target=late).start()\natexit.register(work)\n"
    )
    expected, result = outputs(tmp_path, text, "inner/program.py")
    assert expected == "Thing\nThing\n"
    assert result == expected


def test_frozen_modules(tmp_path):
    text = (
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).eval()\n"
        "frozen = torch.jit.freeze(torch.jit.script(model))\n"
        "with torch.no_grad(): print(frozen(torch.ones(2, 8)).shape)\n"
    )
    expected, result = outputs(tmp_path, text, "inner/program.py")
    assert result == expected


def test_program_options(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import torch\nm = torch.nn.Linear(64, 64).eval()\nwith torch.no_grad(): m(torch.ones(1, 64))\n"
        "n = torch.nn.Linear(8, 8).eval()\nn(torch.ones(1, 8)).sum().backward()\n"
    )
    command = [
        sys.executable,
        "-m",
        "headlane.torch",
        "--weights",
        "int8",
        "--activations",
        "int8",
        str(path),
    ]
    environment = {**os.environ, "HEADLANE_TORCH": "report"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    assert result.stderr.count("linear, int8") == 1
    command[-1] = str(tmp_path / "missing.py")
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode != 0
    assert "missing.py" in result.stderr
