"""Two tactics, PyTorch and Triton, which the build times, and two plugins. It times one of these.

The build's log on stderr shows what was timed.
"""

from enum import IntEnum

import common
import numpy as np
import torch
from circ_pad_plugin import (
    NAME,
    NAMESPACE,
    VERSION,
    as_four_axes,
    fields,
    is_supported,
    padded,
    pads_of,
)
from circ_pad_plugin_triton import circ_pad

import opwright as trt
from opwright.plugin import Tensor


class Tactic(IntEnum):
    TORCH = 1
    TRITON = 2


class CircPadPlugin(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    def __init__(self, pads=(), per_format_tactics=False):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.pads = np.asarray(pads, np.int32)
        self.per_format_tactics = per_format_tactics
        self.tactic = None
        self.plugin_name = NAME
        self.plugin_version = VERSION
        self.plugin_namespace = NAMESPACE
        self.num_outputs = 1
        # The time depends on nothing but the shapes and types of the tensors.
        self.timing_cache_id = ""

    def get_capability_interface(self, type):
        return self

    def clone(self):
        cloned = CircPadPlugin()
        cloned.__dict__.update(self.__dict__)
        return cloned

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, expr_builder):
        return [padded(inputs[0], self.pads, expr_builder)]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return is_supported(pos, [tensor.desc for tensor in in_out])

    def configure_plugin(self, inputs, outputs):
        self.type = inputs[0].desc.type

    def get_valid_tactics(self):
        if self.per_format_tactics and self.type == trt.DataType.HALF:
            return [Tactic.TRITON]
        return [Tactic.TORCH, Tactic.TRITON]

    def set_tactic(self, tactic):
        self.tactic = tactic

    def attach_to_context(self, resource_context):
        return self.clone()

    def on_shape_change(self, inputs, outputs):
        self.four_axes = as_four_axes(inputs[0], outputs[0], self.pads)

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = torch.from_dlpack(Tensor(input_desc[0], inputs[0]))
        y = torch.from_dlpack(Tensor(output_desc[0], outputs[0]))
        # On a GPU the engine has made its stream the current one of torch, which Triton follows.
        if self.tactic == Tactic.TORCH:
            y.copy_(torch.nn.functional.pad(x, self.pads.tolist(), mode="circular"))
        else:
            circ_pad(x, y, *self.four_axes)

    def get_fields_to_serialize(self):
        return fields(self.pads)


class CircPadCreator(trt.IPluginCreatorV3One):
    def __init__(self, per_format_tactics):
        trt.IPluginCreatorV3One.__init__(self)
        self.per_format_tactics = per_format_tactics
        self.name = NAME
        self.plugin_version = VERSION
        self.plugin_namespace = NAMESPACE
        self.field_names = fields()

    def create_plugin(self, name, field_collection, phase):
        return CircPadPlugin(pads_of(field_collection), self.per_format_tactics)


creator = CircPadCreator(per_format_tactics=False)
common.add_example(creator)

if __name__ == "__main__":
    parser = common.argument_parser(__doc__)
    parser.add_argument(
        "--per-format-tactics", action="store_true", help="offer only Triton for fp16"
    )
    args = parser.parse_args()
    trt.get_plugin_registry().register_creator(CircPadCreator(args.per_format_tactics), "")
    builder = trt.Builder(trt.Logger(trt.Logger.VERBOSE))
    model = common.make_model(args.precision, instances=2)
    common.run(builder, common.parse(builder, model), args.precision)
