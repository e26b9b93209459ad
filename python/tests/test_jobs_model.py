"""The files of its model that an interrupted job knows again."""

import json
import shutil

import pytest
from headlane.jobs._identity import model_files
from job_runs import change_byte
from test_jobs_resume import refused, stop_after


@pytest.fixture
def copied(job, tmp_path_factory):
    """The folder of the job's model, which may be changed."""
    job.model = shutil.copytree(job.model, tmp_path_factory.mktemp("model") / "model")
    return job.model


@pytest.mark.parametrize("job", ["embed"], indirect=True)
def test_a_module_that_is_a_link(job, copied, capsys):
    """Its files are the model's, wherever they are."""
    real = copied.rename(copied.with_name("real"))
    (copied / "1_Pooling").mkdir(parents=True)
    (copied / "0_Transformer").symlink_to(real)
    (copied / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    modules = [("0_Transformer", "Transformer"), ("1_Pooling", "Pooling")]
    kinds = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules]
    (copied / "modules.json").write_text(json.dumps(kinds))
    stop_after(job, 2)
    pooling = copied / "1_Pooling/config.json"
    pooling.write_text(pooling.read_text() + " ")
    assert "model 1_Pooling/config.json: " in refused(job, capsys)
    pooling.write_text(pooling.read_text()[:-1])
    change_byte(real / "model.safetensors")
    assert "model 0_Transformer/model.safetensors: " in refused(job, capsys)
    change_byte(real / "model.safetensors")
    job.completes()


def test_shards_of_any_name(job, copied, capsys):
    header = (copied / "model.safetensors").read_bytes()
    tensors = json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])
    (copied / "model.safetensors").rename(copied / "weights.bin")
    names = {name: "weights.bin" for name in tensors if name != "__metadata__"}
    (copied / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    stop_after(job, 2)
    change_byte(copied / "weights.bin")
    assert "model weights.bin: " in refused(job, capsys)
    change_byte(copied / "weights.bin")
    job.completes()


def test_other_files_in_the_folder(job, copied):
    """A job may be where its model is, and files that the model is not read from may change."""
    shutil.copy(job.text, copied / "corpus.txt")
    job.text, job.out, job.folder = copied / "corpus.txt", copied / "out.txt", copied / "out.txt.job"
    stop_after(job, 2)
    (copied / "notes.json").write_text("{}")
    assert job.run("--resume") == 0
    assert job.out.read_bytes() == job.wanted
    assert job.run("--resume") == 0


def test_files_of_a_model(encoder_folder):
    names = ["config.json", "model.safetensors", "tokenizer.json"]
    assert list(model_files(str(encoder_folder), modules=True)) == names
