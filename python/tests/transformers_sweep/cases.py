"""One model type: built small, run with "eager" and with "headlane", or optimized, and compared."""

from __future__ import annotations

import copy
import importlib
import inspect
import warnings
from typing import Any

import headlane
import headlane.torch
import headlane.transformers
import torch
import transformers
from processes import reason
from transformers import GenerationMixin, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from . import tiny
from .inputs import LEFT, LENGTH, MASKS, Inputs, inputs_of, padded

# Tolerance, in units of the largest element: float32 sums in another order differ by up to 6e-6 in
# most models, by 6e-5 in the deepest ones. The faults that this found differed by 0.2 and more.
TOLERANCE = 1e-4
GENERATIONS = {
    "dynamic cache": {"cache_implementation": "dynamic"},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
    "beams": {"num_beams": 3},
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
}


class NotBuilt(Exception):
    pass


def classes_of(model_type: str) -> list[type[PreTrainedModel]]:
    config_class = CONFIG_MAPPING[model_type]
    found = []
    for name in tiny.model_classes(model_type):
        try:
            found.append(getattr(transformers, name))
        except Exception:
            pass
    try:
        module = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
    except ModuleNotFoundError:  # another type's model
        return found
    for name, member in vars(module).items():
        is_model = inspect.isclass(member) and issubclass(member, PreTrainedModel)
        if is_model and member.config_class is config_class and not name.endswith("PreTrainedModel"):
            found += [member] if member not in found else []
    return found


def build(cls, make_config, implementation: str, way: str = "tiny") -> PreTrainedModel:
    torch.manual_seed(0)
    config = make_config()
    try:
        with torch.device("meta"):
            size = sum(
                p.numel()
                for p in cls._from_config(copy.deepcopy(config), attn_implementation="eager").parameters()
            )
    except Exception:
        size = None
    if size is None and way != "tiny":
        raise NotBuilt("of unknown size")
    if size and size > tiny.LARGEST:
        raise NotBuilt(f"{size / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    return cls._from_config(config, attn_implementation=implementation).eval()


def tensors(output: Any, name: str = "") -> list[tuple[str, torch.Tensor]]:
    """The floating-point tensors of an output, without caches."""
    if isinstance(output, torch.Tensor):
        return [(name, output)] if output.is_floating_point() else []
    if isinstance(output, dict):
        others = "cache", "past_key_values", "attentions"
        found = [tensors(v, f"{name}.{k}") for k, v in output.items() if k not in others]
    elif isinstance(output, (list, tuple)):
        found = [tensors(v, f"{name}[{k}]") for k, v in enumerate(output)]
    else:
        found = []
    return [one for part in found for one in part]


def difference(got: Any, expected: Any, mask: torch.Tensor | None) -> float:
    """The largest difference, in units of the largest element; rows of padding are not compared."""
    worst = 0.0
    left, right = tensors(got), tensors(expected)
    if [name for name, _ in left] != [name for name, _ in right]:
        return float("inf")
    for (name, x), (_, y) in zip(left, right):
        if x.shape != y.shape:
            return float("inf")
        if mask is not None and x.dim() >= 2 and "decoder" not in name:
            # A model may append a token of its own (VideoPrism's text).
            there = torch.nn.functional.pad(mask, (0, max(0, min(1, x.shape[1] - LENGTH))), value=1).bool()
            if x.shape[:2] == there.shape:
                x, y = x[there], y[there]
        finite = torch.isfinite(y)
        if not torch.equal(finite, torch.isfinite(x)):
            return float("inf")
        x, y = x[finite], y[finite]
        if x.numel():
            worst = max(worst, float((x - y).abs().max() / y.abs().max().clamp(min=1e-3)))
    return worst


class Calls:
    """How often headlane computes an attention."""

    def __enter__(self):
        self.count, self.original = 0, headlane.scaled_dot_product_attention
        headlane.scaled_dot_product_attention = self
        return self

    def __call__(self, *arguments, **options):
        self.count += 1
        return self.original(*arguments, **options)

    def __exit__(self, *_):
        headlane.scaled_dot_product_attention = self.original


def is_refusal(error: Exception) -> bool:
    return (
        "headlane" in str(error)
        and isinstance(error, (ValueError, TypeError, NotImplementedError))
        and not isinstance(error, KeyError)
    )


def eager_model(model_type: str):
    """(class, make_config, model, inputs) of the first class and configuration that run."""
    config_class = CONFIG_MAPPING[model_type]
    classes = classes_of(model_type)
    if not classes:
        raise NotBuilt("no model class")
    problems = []
    for way, make_config in tiny.configurations(config_class):
        for cls in classes[:2]:
            try:
                model = build(cls, make_config, "eager", way)
                tiny.randomize(model)
            except Exception as error:
                problems.append(f"{way}: {cls.__name__}: {reason(error)}")
                continue
            for inputs in inputs_of(model):
                try:
                    output = run(model, inputs, None)
                    found = tensors(output)
                    if not found:
                        raise NotBuilt("no tensor in the output")
                    if not any(torch.isfinite(x).all() for _, x in found):
                        raise NotBuilt("the output is not finite")
                    return cls, make_config, model, inputs
                except Exception as error:
                    problems.append(f"{way}: {cls.__name__}: {sorted(inputs)}: {reason(error)}")
    raise NotBuilt(problems[0] if problems else "nothing to try")


@torch.no_grad()
def run(model, inputs, mask):
    torch.manual_seed(0)
    return model(**padded(model, inputs, mask))


@torch.no_grad()
def generate(model, inputs, mask, options):
    torch.manual_seed(0)
    inputs = {k: v for k, v in inputs.items() if not k.startswith("decoder_")}
    if "prompt_lookup_num_tokens" in options:  # one sequence only
        inputs = {k: v[1:] for k, v in inputs.items()}
        mask = None
    inputs = padded(model, inputs, mask)
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    model.generation_config.forced_bos_token_id = None
    model.generation_config.max_length = None
    if model.config.is_encoder_decoder and model.generation_config.decoder_start_token_id is None:
        model.generation_config.decoder_start_token_id = 1
    found = model.generate(
        **copy.deepcopy(inputs), max_new_tokens=10, do_sample=False, use_cache=True, pad_token_id=0, **options
    )
    return found if isinstance(found, torch.Tensor) else None


def attempt(function, *arguments):
    try:
        return function(*arguments), None
    except Exception as error:
        return None, error


class Comparison:
    """A model with the attention of transformers, and the same one with "headlane", or optimized."""

    def __init__(self, theirs: PreTrainedModel, model: PreTrainedModel, inputs: Inputs) -> None:
        self.theirs, self.model, self.inputs = theirs, model, inputs
        self.cases: dict[str, str] = {}
        self.judged: dict[str, tuple] = {}
        takes = inspect.signature(theirs.forward).parameters
        self.masks = MASKS if "attention_mask" in takes and "input_ids" in inputs else {"no mask": None}

    def judge(self, name: str, call, compare, *arguments) -> None:
        self.judged[name] = call, compare, arguments
        expected, error = attempt(call, self.theirs, *arguments)
        if error is not None or expected is None:
            self.cases[name] = f"n/a: {reason(error)}" if error else "n/a"
            return
        got, error = attempt(call, self.model, *arguments)
        if error is None:
            self.cases[name] = compare(got, expected)
        else:
            self.cases[name] = f"refused: {error}" if is_refusal(error) else f"fails: {reason(error)}"

    def equals(self, attention: str) -> bool:
        """Whether it computes the same as with this attention wherever it differs."""
        other = copy.deepcopy(self.theirs)
        try:
            other.set_attn_implementation(attention)
        except ValueError:
            return False
        for name in [name for name, case in self.cases.items() if case.startswith("differs")]:
            call, compare, arguments = self.judged[name]
            expected, error = attempt(call, other, *arguments)
            if error is not None or compare(call(self.model, *arguments), expected) != "equal":
                return False
        return True

    def forward(self) -> None:
        for name, mask in self.masks.items():

            def compare(got, expected, mask=mask):
                noise = difference(run(self.theirs, self.inputs, mask), expected, mask)
                found = difference(got, expected, mask)
                return "equal" if found <= TOLERANCE + 2 * noise else f"differs: {found:.1e}"

            self.judge(name, run, compare, self.inputs, mask)

    def generate(self) -> None:
        def compare(got, expected):
            return "equal" if torch.equal(got, expected) else "differs: other tokens"

        for name, options in GENERATIONS.items():
            self.judge(name, generate, compare, self.inputs, LEFT if len(self.masks) > 1 else None, options)


def make_pair(model_type: str, row: dict[str, Any], optimized: str | None) -> Comparison:
    """The two models; warnings from making the second one go to row["warnings"]."""
    cls, make_config, eager, inputs = eager_model(model_type)
    row["class"] = cls.__name__
    if optimized is not None:
        try:
            eager.set_attn_implementation(optimized)
        except ValueError as error:
            raise NotBuilt(reason(error)) from None
        return Comparison(eager, headlane.torch.optimize(eager), inputs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = build(cls, make_config, "headlane")
    row["warnings"] = sorted({str(w.message) for w in caught if "headlane" in str(w.message)})
    model.load_state_dict(copy.deepcopy(eager.state_dict()), strict=False)
    for (_, x), (_, y) in zip(model.named_buffers(), eager.named_buffers()):
        if x.shape == y.shape:
            x.copy_(y)
    return Comparison(eager, model, inputs)


def sweep(model_type: str, optimized: str | None = None) -> dict[str, Any]:
    """A row of the table. optimized: The attention of a model that is optimized; "headlane" is used if it is None."""
    other = "eager" if optimized == "sdpa" else "sdpa"
    row: dict[str, Any] = {"type": model_type, "cases": {}, "calls": 0, "warnings": []}
    try:
        pair = make_pair(model_type, row, optimized)
    except NotBuilt as error:
        return {**row, "status": "not built", "why": str(error)}
    except Exception as error:
        refused = is_refusal(error)
        return {
            **row,
            "status": "refused" if refused else "fails",
            "why": str(error) if refused else reason(error),
        }
    with Calls() as calls:
        pair.forward()
        if isinstance(pair.theirs, GenerationMixin) and pair.theirs.can_generate():
            pair.generate()
    row.update(cases=pair.cases, calls=calls.count)
    found = {case.split(":")[0] for case in pair.cases.values()}
    if "differs" in found and not found & {"fails", "refused"} and pair.equals(other):
        return {**row, "status": f"as {other}", "why": "its eager and sdpa attention differ from each other"}
    for status in ("fails", "differs", "refused"):
        for name, found in pair.cases.items():
            if found.startswith(status):
                return {**row, "status": status, "why": f"{name}: {found}"}
    return {**row, "status": "equal" if calls.count else "not used"}
