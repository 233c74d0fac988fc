"""Lines of training programs, each with the values that the reader takes from it.

`source` names the repository and the file that print the line. A row is fed as a rank would write it, behind the tags that launchers and
loggers put before a line.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from ranklaunch.hangs import steps
from ranklaunch.hangs.steps import Place, Steps


class Row(NamedTuple):
    """place: of the last step in `lines`, None without one. seconds: of a step, as the line prints it. samples, tokens: per second."""

    source: str
    lines: str
    place: Place | None
    seconds: float | None = None
    samples: float | None = None
    tokens: float | None = None


RED, GREEN, ORANGE, TURQUOISE, BLUE, CYAN, MAGENTA, RESET = (f"\x1b[{code}m" for code in (31, 32, "38;2;180;60;0", 36, 34, 36, 35, 39))
GLYPHS = "━━━━━━━━━━━━━━━━━━━━"

ROWS: dict[str, Row] = {
    "Megatron": Row(
        "NVIDIA/Megatron-LM: megatron/training/training.py, training_log",
        " [2025-08-01 07:19:37] iteration       10/    5000 | consumed samples:         1280 | elapsed time per iteration (ms): 1234.5 |"
        " learning rate: 6.976744E-08 | global batch size:   128 | lm loss: 1.0E+01 | loss scale: 1.0 | grad norm: 5.1 |",
        Place(0, 10, 5000),
        1.2345,
        128 / 1.2345,
    ),
    "Megatron, with the mean of recent iterations": Row(
        "NVIDIA/Megatron-LM: megatron/training/training.py, training_log",
        " iteration       10/    5000 | elapsed time per iteration (ms): 1000.0/1100.5 | global batch size:     4 |",
        Place(0, 10, 5000),
        1.0,
        4.0,
    ),
    "MindSpeed": Row(
        "Ascend/MindSpeed-LLM: mindspeed_llm/training/training.py, training_log",
        " [2025-05-27 15:23:07] iteration        1/    2000 | consumed samples:          16 | elapsed time per iteration (ms): 18800.0 |"
        " throughput per GPU (TFLOP/s/GPU): 40.4 | learning rate: 1.5E-06 | global batch size:    16 | lm loss: 1.2E+01 | loss scale: 1.0 |"
        " grad norm: 5.0 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        Place(0, 1, 2000),
        18.8,
        16 / 18.8,
    ),
    "DeepSpeed": Row(
        "deepspeedai/DeepSpeed: deepspeed/runtime/engine.py, _report_progress",
        "[2026-11-22 08:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]",
        Place(0, 10),
    ),
    "DeepSpeed's throughput": Row(
        "deepspeedai/DeepSpeed: deepspeed/utils/timer.py, ThroughputTimer.stop",
        "[2026-11-22 20:00:00,000] [INFO] [timer.py:264:stop] epoch=0/micro_step=20/global_step=10, RunningAvgSamplesPerSec=3.1,"
        " CurrSamplesPerSec=3.2, MemAllocated=0.1GB, MaxMemAllocated=0.2GB",
        Place(0, 10),
        None,
        3.2,
    ),
    "torchtitan": Row(
        "pytorch/torchtitan: torchtitan/components/metrics.py, MetricsProcessor.log",
        f"[titan] 2026-11-22 08:00:01,123 - root - INFO - {RED}step: 10  {GREEN}loss:  7.90123  {ORANGE}grad_norm:  1.2345  "
        f"{TURQUOISE}memory:  1.10GiB(1.16%)  {BLUE}tps: 5,678  {CYAN}tflops: 1,234.56  {MAGENTA}mfu: 12.34%{RESET}",
        Place(0, 10),
        None,
        None,
        5678.0,
    ),
    "torchtitan, metrics of a choice": Row(
        "pytorch/torchtitan: torchtitan/observability/metrics.py, _log_to_console",
        f"INFO - {RED}step: 10  {GREEN}loss_mean: 7.9  {BLUE}tps: 900  {RESET}",
        Place(0, 10),
        None,
        None,
        900.0,
    ),
    "NeMo": Row(
        "NVIDIA/NeMo: nemo/lightning/pytorch/callbacks/progress_printer.py",
        "Training epoch 0, iteration 9/99 | lr: 1.961e-06 | global_batch_size: 8 | global_step: 9 | reduced_train_loss: 1.3 |"
        " train_step_timing in s: 1.23 | consumed_samples: 80",
        Place(0, 9, 99),
        1.23,
    ),
    "NeMo's bar": Row(
        "NVIDIA/NeMo: nemo/lightning/pytorch/callbacks/progress_bar.py, MegatronProgressBar",
        "Epoch 0: :  10%|█         | 10/100 [00:31<04:41, reduced_train_loss=0.0172, global_step=9.000, train_step_timing in s=3.130]",
        Place(0, 10, 100),
        3.13,
    ),
    "MindFormers": Row(
        "mindspore-lab/mindformers: mindformers/core/callback/callback.py, MFLossMonitor",
        "2025-04-07 15:34:29,173 - [mindformers/core/callback/callback.py:529] - INFO - { Epoch:[  1/  2], step:[   10/   19], loss: 10.6,"
        " per_step_time: 250ms, lr: 1e-05, overflow cond: False, loss_scale: 1.0, global_norm: [1.5], train_throughput_per_npu: 2.896T",
        Place(1, 10, 19),
        0.25,
    ),
    "MindSpore": Row(
        "mindspore-ai/mindspore: mindspore/python/mindspore/train/callback/_loss_monitor.py and _time_monitor.py",
        "epoch: 1 step: 10, loss is 2.3\nTrain epoch time: 123.0 ms, per step time: 12.3 ms",
        Place(1, 10),
    ),
    "MindSpore, models": Row(
        "mindspore-ai/models: training scripts that print both in one line",
        "epoch: 1, step: 10, loss is 2.3, epoch time: 123.000ms, per step time: 12.300ms",
        Place(1, 10),
        0.0123,
    ),
    "MindCV": Row(
        "mindspore-lab/mindcv: mindcv/utils/callbacks.py, StateMonitor",
        "[2026-11-22 08:00:01] mindcv.utils.callbacks INFO - Epoch: [1/10], batch: [100/1250], loss: 6.9, lr: 0.1, time: 0.312345s",
        Place(1, 100, 1250),
        0.312345,
    ),
    "verl": Row(
        "volcengine/verl: verl/utils/logger/aggregate_logger.py, LocalLogger",
        "\x1b[36m(TaskRunner pid=1234)\x1b[0m step:1 - global_seqlen/min:100 - actor/grad_norm:np.float64(0.5) - timing_s/gen:3.0 - "
        + " - ".join(f"critic/metric_{n}/mean:{n}.5" for n in range(150))
        + " - perf/total_num_tokens:8000 - perf/time_per_step:17.62 - perf/throughput:11.73",
        Place(0, 1),
        17.62,
        None,
        11.73,
    ),
    "MaxText": Row(
        "AI-Hypercomputer/maxtext: MaxText/metric_logger.py",
        "completed step: 5, seconds: 1.234, TFLOP/s/device: 100.1, Tokens/s/device: 6640.5, total_weights: 32768, loss: 10.8",
        Place(0, 5),
        1.234,
        None,
        6640.5,
    ),
    "Keras": Row(
        "keras-team/keras: keras/src/utils/progbar.py",
        f"Epoch 2/10\n\r\x1b[1m 10/100\x1b[0m \x1b[32m{GLYPHS[:2]}\x1b[0m\x1b[37m{GLYPHS[2:]}\x1b[0m \x1b[1m1s\x1b[0m 12ms/step - "
        "accuracy: 0.9 - loss: 0.5\x08\x08\x08",
        Place(2, 10, 100),
        0.012,
    ),
    "Keras 2": Row(
        "keras-team/tf-keras: tf_keras/utils/generic_utils.py, Progbar",
        "Epoch 1/10\n\n 10/100 [==>...........................] - ETA: 1s - loss: 0.5",
        Place(1, 10, 100),
    ),
    "Keras 2, the end of an epoch": Row(
        "keras-team/tf-keras: tf_keras/utils/generic_utils.py, Progbar",
        "Epoch 1/10\n100/100 [==============================] - 8s 4ms/step - loss: 0.2121 - accuracy: 0.9368",
        Place(1, 100, 100),
        0.004,
    ),
    "Lightning": Row(
        "Lightning-AI/pytorch-lightning: src/lightning/pytorch/callbacks/progress/tqdm_progress.py",
        "Epoch 3:  20%|##   | 10/50 [00:12<00:48,  0.80it/s, v_num=1]",
        Place(3, 10, 50),
        1.25,
    ),
    "Lightning without a length": Row(
        "Lightning-AI/pytorch-lightning: src/lightning/pytorch/callbacks/progress/tqdm_progress.py",
        "Epoch 3: |          | 10/? [00:12<00:00,  0.80it/s, v_num=1]",
        Place(3, 10),
        1.25,
    ),
    "Lightning with rich": Row(
        "Lightning-AI/pytorch-lightning: src/lightning/pytorch/callbacks/progress/rich_progress.py",
        f"Epoch 3/9  {GLYPHS} 7/50 0:00:01 • 0:00:01 20.00it/s v_num: 1",
        Place(3, 7, 50),
        0.05,
    ),
    "nanoGPT": Row("karpathy/nanoGPT: train.py", "iter 10: loss 4.5012, time 123.45ms, mfu 1.23%", Place(0, 10), 0.12345),
    "Hugging Face's bar": Row(
        "huggingface/transformers: src/transformers/trainer_callback.py, ProgressCallback",
        " 20%|##   | 10/50 [00:12<00:48,  1.21s/it]",
        Place(0, 10, 50),
        1.21,
    ),
    "Hugging Face's dict beside the bar": Row(
        "huggingface/transformers: src/transformers/trainer_callback.py, ProgressCallback",
        "\r  5%|▌         | 10/200 [00:12<03:50,  1.21s/it]\n"
        "{'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 4.9e-05, 'epoch': 0.1}\n\n",
        Place(0, 10, 200),
        1.21,
    ),
    "LLaMA-Factory": Row(
        "hiyouga/LLaMA-Factory: src/llamafactory/train/callbacks.py, LogCallback",
        "\r 20%|██        | 10/50 [00:20<01:20,  2.00s/it]\n"
        "[INFO|2026-11-22 08:00:01] llamafactory.train.callbacks:143 >> {'loss': 0.5, 'learning_rate': 4.9e-05, 'epoch': 0.10}",
        Place(0, 10, 50),
        2.0,
    ),
    "ms-swift": Row(
        "modelscope/ms-swift: swift/trainers/callback.py",
        "Train:   2%|▏         | 1/60 [00:42<41:47, 42.51s/it]{'loss': '0.3713', 'grad_norm': '0.89', 'epoch': '0.08602',"
        " 'global_step/max_steps': '1/60', 'elapsed_time': '43s', 'memory(GiB)': '14.3', 'train_speed(s/it)': '42.51'}",
        Place(0, 1, 60),
        42.51,
    ),
    "ms-swift 3": Row(
        "modelscope/ms-swift: swift/trainers/callback.py",
        "{'loss': 2.13, 'epoch': 0.32, 'global_step/max_steps': '5/16', 'percentage': '31.25%', 'train_speed(iter/s)': 0.5}",
        Place(0, 5, 16),
        2.0,
    ),
    "torchtune": Row(
        "pytorch/torchtune: recipes/full_finetune_distributed.py",
        "1|10|Loss: 2.3012:   5%|▌         | 10/200 [00:12<03:48,  1.20s/it]",
        Place(1, 10, 200),
        1.2,
    ),
    "mmengine": Row(
        "open-mmlab/mmengine: mmengine/runner/log_processor.py",
        "07/03 13:04:17 - mmengine - INFO - Epoch(train)  [1][  50/1000]  base_lr: 3.3e-04 lr: 3.3e-04  eta: 0:13:14  time: 0.4073"
        "  data_time: 0.0335  memory: 970  loss: 6.1887",
        Place(1, 50, 1000),
        0.4073,
    ),
    "mmengine by iterations": Row(
        "open-mmlab/mmengine: mmengine/runner/log_processor.py",
        "08/12 11:40:22 - mmengine - INFO - Iter(train) [  50/2000]  lr: 4.9841e-05  eta: 0:11:24  time: 0.2934  loss: 2.5",
        Place(0, 50, 2000),
        0.2934,
    ),
    "mmcv": Row(
        "open-mmlab/mmcv: mmcv/runner/hooks/logger/text.py",
        "2022-01-01 08:00:01,123 - mmdet - INFO - Epoch [1][50/7330]\tlr: 1.978e-03, eta: 1:00:00, time: 0.500, data_time: 0.05, loss: 1.1",
        Place(1, 50, 7330),
        0.5,
    ),
    "timm": Row(
        "huggingface/pytorch-image-models: train.py",
        "Train: 0 [  50/1251 (  4%)]  Loss:  6.927 (6.918)  Time: 0.500s,  512.00/s  (0.600s,  500.00/s)  LR: 1.000e-06  Data: 0.005",
        Place(0, 50, 1251),
        0.5,
        512.0,
    ),
    "PaddlePaddle": Row(
        "PaddlePaddle/PaddleRec: tools/trainer.py; PaddlePaddle/PaddleOCR: tools/program.py",
        "epoch: 1, batch: 10, loss: 0.69, avg_reader_cost: 0.01 sec, avg_batch_cost: 0.5 sec, avg_samples: 64.0, ips: 128.0 samples/s",
        Place(1, 10),
        0.5,
        128.0,
    ),
    "PaddleOCR": Row(
        "PaddlePaddle/PaddleOCR: tools/program.py",
        "[2026/11/22 08:00:01] ppocr INFO: epoch: [1/10], global_step: 10, lr: 0.001, loss: 3.1, avg_reader_cost: 0.01 s,"
        " avg_batch_cost: 0.5 s, avg_samples: 8.0, ips: 16.00000 samples/s, eta: 1:00:00",
        Place(1, 10),
        0.5,
        16.0,
    ),
    "PaddleClas": Row(
        "PaddlePaddle/PaddleClas: ppcls/engine/train/utils.py",
        "[2026/11/22 08:00:01] ppcls INFO: [Train][Epoch 1/120][Iter: 10/1251]lr(LinearWarmup): 0.1, top1: 0.1, CELoss: 6.9, loss: 6.9,"
        " batch_cost: 0.50000s, reader_cost: 0.1, ips: 123.4 samples/s, eta: 1:00:00",
        Place(1, 10, 1251),
        0.5,
        123.4,
    ),
    "PaddleSeg": Row(
        "PaddlePaddle/PaddleSeg: paddleseg/core/train.py",
        "2026-11-22 08:00:01 [INFO]\t[TRAIN] epoch: 1, iter: 10/1000, loss: 0.5, lr: 0.01, batch_cost: 0.1000, reader_cost: 0.01,"
        " ips: 20.1234 samples/sec | ETA 00:01:39",
        Place(1, 10, 1000),
        0.1,
        20.1234,
    ),
    "PaddleDetection": Row(
        "PaddlePaddle/PaddleDetection: ppdet/engine/callbacks.py, LogPrinter",
        "[11/22 08:00:01] ppdet.engine INFO: Epoch: [0] [ 10/100] learning_rate: 0.001 loss: 6.9 eta: 0:10:00 batch_cost: 0.5000"
        " data_cost: 0.1000 ips: 12.3000 images/s",
        Place(0, 10, 100),
        0.5,
        12.3,
    ),
    "PaddleNLP": Row(
        "PaddlePaddle/PaddleNLP: paddlenlp/trainer/trainer.py and trainer_callback.py",
        "[2022-08-31 16:19:16,008] [    INFO] - loss: 3.25806541, learning_rate: 2.99e-05, global_step: 10, interval_runtime: 2.2591,"
        " interval_samples_per_second: 32.0, interval_steps_per_second: 4.0, epoch: 0.0265",
        Place(0, 10),
        0.25,
        32.0,
    ),
    "detectron2": Row(
        "facebookresearch/detectron2: detectron2/utils/events.py, CommonMetricPrinter",
        "[11/22 08:00:01 d2.utils.events]:  eta: 0:01:00  iter: 19  total_loss: 1.234  loss_cls: 0.5    time: 0.5000  last_time: 0.4000"
        "  data_time: 0.0100  last_data_time: 0.0050   lr: 0.00025  max_mem: 5000M",
        Place(0, 19),
        0.5,
    ),
    "torchvision": Row(
        "pytorch/vision: references/detection/utils.py, MetricLogger",
        "Epoch: [0]  [ 10/100]  eta: 0:00:45  lr: 0.01  loss: 1.0 (1.1)  time: 0.5000 (0.6000)  data: 0.1000 (0.2000)  max mem: 1000",
        Place(0, 10, 100),
        0.5,
    ),
    "PyTorch's ImageNet example": Row(
        "pytorch/examples: imagenet/main.py",
        "Epoch: [0][  10/5005]\tTime  0.500 ( 0.600)\tData  0.001 ( 0.100)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.00 (  0.10)",
        Place(0, 10, 5005),
        0.5,
    ),
    "PyTorch's MNIST example": Row(
        "pytorch/examples: mnist/main.py", "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.310", Place(1, 640, 60000)
    ),
    "fairseq": Row(
        "facebookresearch/fairseq: fairseq/logging/progress_bar.py, JsonProgressBar",
        '2021-03-08 12:31:36 | INFO | train_inner | {"epoch": 1, "update": 0.012, "loss": "16.475", "ppl": "91120.8", "wps": "14185.4",'
        ' "ups": "0.5", "wpb": "16384", "bsz": "8", "num_updates": "300", "lr": "2e-05", "gnorm": "20.751", "wall": "105"}',
        Place(1, 300),
        2.0,
        None,
        14185.4,
    ),
    "fairseq's simple lines": Row(
        "facebookresearch/fairseq: fairseq/logging/progress_bar.py, SimpleProgressBar",
        "2021-03-08 12:31:36 | INFO | train_inner | epoch 001:     10 / 1000 loss=21.2, ppl=91120, wps=14185, ups=0.5, num_updates=10",
        Place(1, 10, 1000),
        2.0,
        None,
        14185.0,
    ),
    "Composer": Row(
        "mosaicml/composer: composer/loggers/console_logger.py",
        "[epoch=1][batch=10/100]:\n\t Train loss/train/total: 10.97\n",
        Place(1, 10, 100),
    ),
    "Ultralytics": Row(
        "ultralytics/ultralytics: ultralytics/engine/trainer.py",
        "      1/100      4.52G      1.234      1.502      1.301         20        640:  10%|█         | 10/100 [00:05<00:45,  2.00it/s]",
        Place(1, 10, 100),
        0.5,
    ),
    "tqdm without a total": Row("tqdm/tqdm: tqdm/std.py, format_meter", "10it [00:05,  2.00it/s]", Place(0, 10), 0.5),
    "a program's own form": Row(
        "no program: three lines of one form",
        "".join(f"worker {n} done, step_time: 0.5s, tokens/s 1,234\n" for n in (4, 5, 6)),
        Place(0, 6),
        0.5,
        None,
        1234.0,
    ),
    "a line without a number of the step": Row(
        "huggingface/transformers: src/transformers/trainer_callback.py, PrinterCallback",
        "".join(f"{{'loss': 1.{n}, 'grad_norm': 0.5, 'learning_rate': 4.{n}e-05, 'epoch': 0.{n}}}\n" for n in range(1, 6)),
        None,
    ),
    "evaluation of Keras": Row(
        "keras-team/keras: keras/src/utils/progbar.py",
        "".join(f"{n}/5 {GLYPHS} 0s 2ms/step - loss: 0.{n}\r" for n in range(1, 6)),
        None,
    ),
    "validation of torchtitan": Row(
        "pytorch/torchtitan: torchtitan/components/metrics.py, MetricsProcessor.log_validation",
        "validate step: 10  loss:  7.9  memory:  1.10GiB(1.16%)  tps: 5,678",
        None,
    ),
    "validation of mmengine": Row(
        "open-mmlab/mmengine: mmengine/runner/log_processor.py",
        "Epoch(val) [1][  50/100]    eta: 0:00:10  time: 0.1  data_time: 0.01  memory: 970",
        None,
    ),
    "validation of Lightning": Row(
        "Lightning-AI/pytorch-lightning: src/lightning/pytorch/callbacks/progress/tqdm_progress.py",
        "Validation DataLoader 0:  20%|##   | 1/5 [00:00<00:00, 12.3it/s]",
        None,
    ),
    "shards of a checkpoint": Row(
        "huggingface/transformers: src/transformers/modeling_utils.py",
        "Loading checkpoint shards:  50%|#####     | 2/4 [00:01<00:01,  1.21it/s]",
        None,
    ),
    "epoch and step in brackets": Row("many tutorials", "Epoch [2/4], Step [7/40], Loss: 0.1234", Place(2, 7, 40)),
    "a bar that names its epoch": Row(
        "tqdm/tqdm: tqdm/std.py, format_meter, with desc", "Epoch 3/5:  20%|##  | 10/50 [00:12<00:48,  1.21s/it]", Place(3, 10, 50), 1.21
    ),
    "a bar of validation": Row(
        "tqdm/tqdm: tqdm/std.py, format_meter", "Epoch 3 validation:  20%|##  | 10/50 [00:12<00:48,  1.21s/it]", None
    ),
    "tokenizing": Row(
        "huggingface/datasets: src/datasets/arrow_dataset.py", "Map (num_proc=8):  20%|##  | 10/50 [00:01<00:02, 1.2 examples/s]", None
    ),
}  # fmt: skip

TAGS = ("", "[rank0]:", "[rank0]: ", "[1,0]<stdout>:", "[1,0]<stdout>: ", "[default0]:", "2026-11-22 08:00:01,123 - INFO - ")


@pytest.mark.parametrize("name", ROWS)
def test_a_line_of_each_shape(name: str) -> None:
    row = ROWS[name]
    for tag in TAGS:
        steps = Steps()
        lines = "".join(f"{tag}{line}" if line.strip() else line for line in row.lines.splitlines(keepends=True))
        steps.feed(f"{lines}\n".encode(), 5.0)
        if row.place is None:
            assert steps.last is None, tag
            continue
        assert steps.last, tag
        assert (steps.last.place, steps.last.at) == (row.place, 5.0), tag
        read = (steps.last.seconds, steps.last.samples, steps.last.tokens)
        for value, expected in zip(read, (row.seconds, row.samples, row.tokens)):
            assert value == (None if expected is None else pytest.approx(expected)), (tag, read)


def test_each_shape_has_a_row() -> None:
    found = {reading.shape for row in ROWS.values() for line in row.lines.splitlines() if (reading := steps.read(line, 1))}
    assert found == {shape.name for shape in steps.SHAPES}


@pytest.mark.parametrize(
    ("line", "samples", "tokens"),
    [
        ("tokens/s 1,234", 0, 1234),
        ("tps: 5,678", 0, 5678),
        ("5,678 tps", 0, 5678),
        ("samples/s 9.3", 9.3, 0),
        ("9.3 samples/s", 9.3, 0),
        ("loss 0.3 samples/s 32", 0, 0),
        ("steps 9", 0, 0),
    ],
)
def test_the_number_stands_on_either_side_of_its_unit(line: str, samples: float, tokens: float) -> None:
    assert (steps.samples_per_second(line), steps.tokens_per_second(line)) == (samples, tokens)


@pytest.mark.parametrize(
    "line", ["iter 10: loss 4.5, time 0.00ms", f"iter 10: loss 4.5, time {'9' * 400}ms", "10/50 [00:01<00:02, 0.0it/s]"]
)
def test_a_time_that_no_step_takes_is_none(line: str) -> None:
    reading = steps.read(line)
    assert reading
    assert (reading.place, reading.seconds) == (Place(0, 10, 50 if "/" in line else 0), None)


def test_of_two_lines_in_one_piece_the_one_that_says_more_counts() -> None:
    steps = Steps()
    steps.feed(b" iteration        5/     500 | loss 1 |\n 10%|#  | 1/50 [00:01<00:48, 1.2s/it]\n", 1.0)
    assert steps.last
    assert (steps.last.shape, steps.last.place) == ("Megatron", Place(0, 5, 500))
