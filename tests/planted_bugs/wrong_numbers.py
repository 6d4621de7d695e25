"""Bugs that make numbers wrong without a word: order, gradients, rates, losses, metrics and data."""

from tests.planted_bugs.bug import Bug

ORDER = (
    Bug(
        "evaluation-without-the-rest",
        "An evaluation drops the samples that do not fill a batch of every process.",
        "engine/data/samplers.py",
        "return -(-self.num_samples // (self.batch_size * self.world_size))",
        "return self.num_samples // (self.batch_size * self.world_size)",
        (
            "tests/engine/data/test_samplers.py",
            "tests/engine/test_datamodule.py",
            "tests/distributed/exactness/test_exactness.py",
        ),
    ),
    Bug(
        "stream-is-read-once",
        "A stream that begins anew in the same epoch, as that of every validation does, is at its end.",
        "engine/data/stream.py",
        "if epoch != self._epoch or start < self._position:",
        "if epoch != self._epoch:",
        ("tests/engine/data/test_stream.py", "tests/distributed/exactness/test_streaming.py"),
    ),
    Bug(
        "dropout-without-the-process",
        "All processes drop the same units of their different samples.",
        "engine/module.py",
        "seed_torch(global_seed(), self.trainer.global_step, micro, data_parallel_rank(self.trainer).rank)",
        "seed_torch(global_seed(), self.trainer.global_step, micro)",
        (
            "tests/engine/test_module.py",
            "tests/engine/determinism/test_stateless_rng.py",
            "tests/distributed/exactness/test_exactness.py",
        ),
    ),
    Bug(
        "negatives-without-the-epoch",
        "A sample meets the same negatives in every epoch.",
        "datamodules/recommender/negatives/negative_mixture.py",
        "where = (self._seed, epoch, _NEGATIVES, samples, positions, ",
        "where = (self._seed, 0, _NEGATIVES, samples, positions, ",
        ("tests/datamodules/recommender/test_dataset.py", "tests/lightning_modules/recommender/test_module.py"),
    ),
    Bug(
        "validations-by-micro-batches",
        "With accumulation a validation comes after fewer optimizer steps than asked for.",
        "engine/data/step_limits.py",
        "trainer.val_check_interval = interval * accumulation",
        "trainer.val_check_interval = interval",
        (
            "tests/engine/data/test_step_limits.py",
            "tests/engine/test_datamodule.py",
            "tests/distributed/exactness/test_exactness.py",
        ),
    ),
)

GRADIENTS = (
    Bug(
        "mean-of-means",
        "Processes average their own means, so a term of a short micro-batch weighs more.",
        "engine/optim/global_loss_mean.py",
        "world_size = torch.distributed.get_world_size()\n            torch.distributed.all_reduce(sums)",
        "torch.distributed.all_reduce(sums[2:])",
        ("tests/engine/optim/test_global_loss_mean.py", "tests/distributed/exactness/test_exactness.py"),
    ),
    Bug(
        "count-of-the-last-micro-batch",
        "With accumulation the sum of a step is divided by the terms of its last micro-batch.",
        "engine/optim/global_loss_mean.py",
        "map(float, self.terms)",
        "map(float, self.terms[-1:])",
        ("tests/engine/optim/test_global_loss_mean.py", "tests/distributed/exactness/test_exactness.py"),
    ),
    Bug(
        "norm-of-the-first-step",
        "Gradients of all steps are clipped, logged and guarded by the norm of the first one.",
        "engine/module.py",
        "self._gradient_norm = None",
        'self._gradient_norm = getattr(self, "_gradient_norm", None)',
        (
            "tests/engine/optim/test_grad_norm.py",
            "tests/callbacks/guards/test_finite_guard.py",
            "tests/engine/optim/test_optimizers.py",
        ),
    ),
    Bug(
        "skipped-step-decays-the-weights",
        "A step that is skipped for its NaN still decays weights and moves them by Adam's momentum.",
        "callbacks/guards/finite_guard.py",
        "parameter.grad = None",
        "parameter.grad.zero_()",
        ("tests/callbacks/guards/test_finite_guard.py", "tests/distributed/faults/test_numeric_guards.py"),
    ),
    Bug(
        "gradients-of-others-are-dropped",
        "A row that other processes compare with gets the gradient of its own process alone.",
        "engine/distributed/collectives.py",
        "torch.distributed.all_reduce(total)",
        "pass",
        (
            "tests/lightning_modules/document_qa/test_contrastive.py",
            "tests/distributed/families/test_page_retriever.py",
        ),
    ),
    Bug(
        "resumed-step-at-the-first-rate",
        "The first step after a resume has the rate of the very first step.",
        "engine/optim/parameter_groups.py",
        'lr=settings["lr"] * factor(scheduler.last_epoch)',
        'lr=settings["lr"] * factor(0)',
        (
            "tests/engine/optim/test_optimizers.py",
            "tests/engine/optim/test_lr_schedule.py",
            "tests/commands/test_resume.py",
        ),
    ),
)

LOSSES_AND_METRICS = (
    Bug(
        "gradient-of-the-last-chunk",
        "Of logits that are computed in chunks, the items get the gradient of the last chunk alone.",
        "lightning_modules/recommender/losses/linear_cross_entropy.py",
        "grad_weight.addmm_(exponentials.T, chunk / total)",
        "grad_weight.addmm_(exponentials.T, chunk / total, beta=0)",
        ("tests/lightning_modules/recommender/losses/test_next_item.py",),
    ),
    Bug(
        "ties-for-the-model",
        "An item with the target's score ranks behind it, so a model that scores all alike ranks first.",
        "lightning_modules/recommender/item_scores.py",
        "ahead = ~(block.scores < target_scores)",
        "ahead = block.scores > target_scores",
        ("tests/lightning_modules/recommender/test_ranking_metrics.py",),
    ),
    Bug(
        "fillers-count-in-the-loss",
        "Rows without a sample, which keep processes in step, count in the mean loss of an evaluation.",
        "lightning_modules/image_classifier/evaluated_classifier.py",
        "self.loss.update(losses, (batch.labels >= 0).float())",
        "self.loss.update(losses)",
        (
            "tests/lightning_modules/image_classifier/test_module.py",
            "tests/distributed/families/test_image_classifier.py",
        ),
    ),
)

DATA = (
    Bug(
        "validation-item-is-trained-on",
        "Leave-one-out leaves the validation's item in the training part.",
        "datamodules/recommender/splits.py",
        "train_end = np.where(evaluated, stops - 2, stops)",
        "train_end = np.where(evaluated, stops - 1, stops)",
        (
            "tests/datamodules/recommender/test_splits.py",
            "tests/datamodules/recommender/sources/test_synthetic_marketplace.py",
        ),
    ),
    Bug(
        "step-of-the-first-gap",
        "A recorded timeline whose first sample is followed by a gap is read at a coarser step, or refused.",
        "datamodules/temporal/timelines/recorded/csv_file.py",
        "float(distances.min())",
        "float(distances[0])",
        ("tests/datamodules/temporal/timelines/recorded/test_recording_reader.py",),
    ),
    Bug(
        "end-of-turn-is-not-learned",
        "The token that ends an answer is not supervised, so the model never stops writing.",
        "datamodules/multimodal/text/chat_encoder.py",
        "[learned] * (len(text) + 1) + [False] * (len(after) - 1)",
        "[learned] * len(text) + [False] * len(after)",
        ("tests/datamodules/multimodal/text/test_chat_encoder.py", "tests/datamodules/multimodal/test_chat_dataset.py"),
    ),
    Bug(
        "mixture-without-the-epoch",
        "Of a source with a weight below 1 every epoch takes the same part.",
        "datamodules/vision_language/mixture.py",
        "at = (epoch * self.samples + index) % self.rows",
        "at = index % self.rows",
        ("tests/datamodules/vision_language/test_mixture.py",),
    ),
    Bug(
        "pages-without-a-word-backwards",
        "Pages that no word of the question is on are ranked from the last to the first.",
        "datamodules/document_qa/retrieval/bm25.py",
        'np.argsort(-scores, kind="stable")',
        'np.argsort(scores, kind="stable")[::-1]',
        ("tests/datamodules/document_qa/retrieval/test_retrievers.py",),
    ),
)

BUGS = (*ORDER, *GRADIENTS, *LOSSES_AND_METRICS, *DATA)
