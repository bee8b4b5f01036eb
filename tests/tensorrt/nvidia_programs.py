"""The Python programs of NVIDIA/TensorRT, 11.x: how each is run, what it needs, what it says when all is well.

Nothing of theirs is here. `program_runs` runs them from a checkout.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

CORRECT = r"Inference result (is )?correct!"
RECOGNIZED = "Correctly recognized"

#: What stands in an argument for the folder of data that `stand_in_data` makes.
DATA = "{data}"
#: The environment variable with the library that circ_plugin_cpp of the checkout makes.
CIRC_PAD_LIBRARY = "OPWRIGHT_CIRC_PAD_LIBRARY"


@dataclass(frozen=True)
class Program:
    """A program, or several that work on the same files, one after the other."""

    folder: str
    """Below samples/python."""
    commands: tuple[tuple[str, ...], ...]
    """Each a script with its arguments."""
    expected: tuple[str, ...] = ()
    """Regular expressions that the output matches, beside an exit status of 0."""
    modules: tuple[str, ...] = ()
    """What must be importable beside Polygraphy."""
    variables: tuple[str, ...] = ()
    """Variables of the environment that must be set."""
    gpu: bool = True
    """Whether it needs a GPU."""
    limit: float = 150
    """Seconds."""

    @property
    def name(self) -> str:
        """As people write it: the folder and the commands."""
        return f"{self.folder}: " + "; ".join(" ".join(command) for command in self.commands)


def _one(folder: str, *command: str, expected: str, **options) -> Program:
    return Program(folder, (command,), (expected,), **options)


def _python_plugin() -> list[Program]:
    scripts = {
        "circ_pad_plugin_cuda_python.py": ("cuda.bindings", "cupy"),
        "circ_pad_plugin_inetdef_cuda_python.py": ("cuda.bindings", "cupy"),
        "circ_pad_plugin_cupy.py": ("cuda.bindings", "cupy"),
        "circ_pad_plugin_numba.py": ("cuda.bindings", "cupy", "numba.cuda"),
        "circ_pad_plugin_torch.py": ("cuda.bindings", "cupy", "torch"),
        "circ_pad_plugin_triton.py": ("cuda.bindings", "cupy", "torch", "triton"),
    }
    precisions = (("--precision", "fp32"), ("--precision", "fp16"))
    made = [
        _one("python_plugin", script, *precision, expected=CORRECT, modules=modules)
        for script, modules in scripts.items()
        for precision in precisions
    ]
    made += [
        Program(
            "python_plugin",
            (("circ_pad_plugin_multi_tactic.py", *precision, *tactics),),
            ("result A correct!", "result B correct!"),
            ("cuda.bindings", "cupy", "torch", "triton"),
        )
        for precision in precisions
        for tactics in ((), ("--per-format-tactics",))
    ]
    library = "{" + CIRC_PAD_LIBRARY + "}"
    made += [
        _one(
            "python_plugin",
            "circ_pad_plugin_cpp.py",
            *precision,
            "--plugin-lib",
            library,
            expected=CORRECT,
            variables=(CIRC_PAD_LIBRARY,),
        )
        for precision in precisions
    ]
    return made


def _quickly_deployable() -> list[Program]:
    runner = "qdp_runner.py"
    modules = ("cuda.bindings", "cupy", "torch", "triton")
    runs = [
        [("add", *flags)]
        for flags in ((), ("--autotune",), ("--aot",), ("--autotune", "--aot"), ("-v",))
    ]
    runs += [[("inplace_add", *flags)] for flags in ((), ("--verbose",))]
    runs += [[("non_zero", *flags)] for flags in ((), ("-v",))]
    here = ("--artifacts_dir", ".")
    for mode, tactics, aot in itertools.product(
        ("onnx", "inetdef"), ((), ("--multi_tactic",)), ((), ("--aot",))
    ):
        build = ("circ_pad", "--mode", mode, *here, *tactics, *aot)
        runs.append([(*build, "--save_engine"), ("circ_pad", "--load_engine", *here, *tactics)])
    runs.append([("circ_pad", "--mode", "inetdef", "-v")])
    return [
        Program(
            "quickly_deployable_plugins",
            tuple((runner, *command) for command in commands),
            (CORRECT,) * len(commands),
            modules,
        )
        for commands in runs
    ]


def _with_data() -> list[Program]:
    """Programs that recognize pictures, here on a model and pictures that `stand_in_data` makes."""
    modules = ("cuda.bindings", "PIL")
    data = ("-d", DATA)
    build = ("build_engines.py", *data)
    refit = ("refit_engine_and_infer.py", *data)
    saved = ("built and saved stripped_engine.trt", "built and saved normal_engine.trt")
    return [
        _one(folder, script, *data, expected=RECOGNIZED, modules=modules)
        for folder, script in (
            ("introductory_parser_samples", "onnx_resnet50.py"),
            ("simple_progress_monitor", "simple_progress_monitor.py"),
        )
    ] + [
        Program("sample_weight_stripping", (build,), saved, modules, gpu=False),
        Program(
            "sample_weight_stripping",
            (build, refit),
            (*saved, "Normal engine correctly", "Refitted stripped engine correctly"),
            modules,
        ),
    ]


PROGRAMS: Sequence[Program] = [
    *_python_plugin(),
    *_quickly_deployable(),
    *(
        _one(
            "non_zero_plugin",
            "non_zero_plugin.py",
            *("--precision", precision, "--backend", backend, "--net_type", net),
            expected=CORRECT,
            modules=("cuda.bindings", "cupy", "torch"),
        )
        for precision in ("fp32", "fp16")
        for backend in ("torch", "cuda_python")
        for net in ("onnx", "inetdef")
    ),
    *(
        _one(
            "aliased_io_plugin",
            "aliased_io_plugin.py",
            *("--precision", precision, "--validate", "--seed", "3"),
            expected="Validation against reference successful!",
            modules=("cupy", "torch", "triton"),
        )
        for precision in ("fp32", "fp16")
    ),
    _one(
        "stream_writer",
        "build.py",
        expected="Engine deserialized successfully",
        gpu=False,
    ),
    _one(
        "cute_dsl_plugin",
        "rms_norm_plugin_cutedsl.py",
        expected=CORRECT,
        modules=("cupy", "torch", "cutlass"),
    ),
    *_with_data(),
]

#: What is not run, with the reason.
NOT_RUN = {
    "attention_mdtrt": "several GPUs that share one network",
    "dds_faster_rcnn": "downloads a model and pictures",
    "detectron2": "downloads models and pictures, and needs detectron2",
    "engine_refit_onnx_bidaf": "downloads a model",
    "network_api_pytorch_mnist": "downloads pictures to train with",
    "onnx_custom_plugin": "a C++ plugin that its own CMake file builds, and downloads a model",
    "onnx_packnet": "downloads a model",
    "refactored": "notebooks",
    "strongly_type_autocast": "needs nvidia-modelopt and the MNIST pictures of the binary package",
}
