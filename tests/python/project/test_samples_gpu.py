"""The CUDA kernels of samples/aot on the emulated GPU, each with every set of its constants."""

import sys

import numpy as np
import pytest

import cuda_driver
import emulated_gpu
import opwright as trt
import opwright.plugin as trtp
from cuda_driver import DeviceArray
from paths import SAMPLES

pytestmark = emulated_gpu.required

sys.path.insert(0, str(SAMPLES / "aot"))
import circ_pad  # noqa: E402

TYPES = {np.float32: trt.float32, np.float16: trt.float16}
# Shapes and pads of columns and rows, before and after: rows longer and shorter than a warp takes, odd ones, pads that
# are wider than the row.
PADDED = [
    ((2, 5, 224), (3, 3, 3, 3)),
    ((2, 3, 7, 41), (1, 2, 3, 4)),
    ((3, 7, 225), (2, 1, 0, 3)),
    ((2, 5, 300), (0, 0, 1, 1)),
    ((3, 4, 5), (7, 9, 6, 1)),
    ((5, 3, 64), (100, 3, 5, 7)),
    ((1, 3, 1, 1), (1, 2, 3, 4)),
]


class Shifted:
    """An array in GPU memory that begins an element behind an aligned address and ends with the memory."""

    def __init__(self, values):
        self.memory = DeviceArray(np.append(values.ravel()[:1], values))
        self.__cuda_array_interface__ = {
            **self.memory.__cuda_array_interface__,
            "shape": values.shape,
            "data": (self.memory.ptr + values.itemsize, False),
        }


def pad_operator(number):
    """The sample's operator with only one set of constants."""

    @trtp.kernel(
        f"samples_gpu::pad{number}",
        circ_pad.FOLDER / "circ_pad.cu",
        "circ_pad",
        grid=lambda outputs, WARPS: trtp.cdiv(circ_pad.lines(outputs), WARPS),
        block=lambda WARPS: 32 * WARPS,
        extra=lambda x, pads, outputs: [
            trtp.SymInt32(circ_pad.lines(outputs)),
            *circ_pad.sizes(x, pads, outputs),
        ],
        constants=circ_pad.TACTICS[number],
    )
    def pad(x: trtp.TensorDesc, pads: np.typing.NDArray[np.int32]) -> trtp.TensorDesc:
        return circ_pad.circ_pad(x, pads)

    return getattr(trtp.op.samples_gpu, f"pad{number}")


@pytest.mark.parametrize(
    "number", range(len(circ_pad.TACTICS)), ids=lambda i: str(circ_pad.TACTICS[i])
)
def test_circular_padding(number):
    operator = pad_operator(number)
    random = np.random.default_rng(number)
    for dtype, tensor_type in TYPES.items():
        for shape, pads in PADDED:
            network = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_network()
            x = network.add_input("x", tensor_type, shape)
            layer = network.add_plugin(operator(x, pads=np.array(pads, np.int32)))
            network.mark_output(layer.get_output(0))
            engine = trt.build(network, device=trt.DeviceType.GPU, timing=False)
            values = random.random(shape).astype(dtype)
            widths = [(0, 0)] * (len(shape) - 2) + [pads[2:], pads[:2]]
            expected = np.pad(values, widths, mode="wrap")
            np.testing.assert_array_equal(engine(values), expected)
            shifted = engine(Shifted(values))
            np.testing.assert_array_equal(cuda_driver.read_interface(shifted), expected)
