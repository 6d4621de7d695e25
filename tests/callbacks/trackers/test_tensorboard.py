"""TensorBoard's file cannot be created: the cause is logged, and the run continues."""

from callbacks.trackers.tensorboard import TensorBoard


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path, messages):
    (tmp_path / "file").touch()
    logger = TensorBoard(tmp_path / "file", name="a", version="")
    for step in range(3):
        logger.log_metrics({"train/loss": 0.965}, step)
    logger.save()
    logger.finalize("success")
    assert len(messages) == 1
    assert messages[0].startswith(f"TensorBoard cannot write into {tmp_path}/file/a")
    assert "Not a directory" in messages[0]
    assert messages[0].endswith("the run continues without it")


def test_the_probe_of_tensorboard_leaves_no_file(tmp_path):
    logger = TensorBoard(tmp_path, name="a", version="")
    logger.log_metrics({"train/loss": 0.965}, 1)
    logger.finalize("success")
    (file,) = (tmp_path / "a").iterdir()
    assert file.name.startswith("events.out.tfevents")
