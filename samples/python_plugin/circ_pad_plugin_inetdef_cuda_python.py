"""The plugin of circ_pad_plugin_cuda_python.py in a network that a program defines. Needs a GPU."""

import common
from circ_pad_plugin import CircPadCreatorV2
from circ_pad_plugin_cuda_python import CircPadPlugin

import opwright as trt

if __name__ == "__main__":
    precision = common.argument_parser(__doc__).parse_args().precision
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    network = common.create_network(builder)
    x = network.add_input("x0", common.TYPES[precision][0], common.SHAPE)
    y = network.add_plugin_v2([x], CircPadPlugin(common.PADS)).get_output(0)
    y.name = "y0"
    network.mark_output(y)
    # Loading the engine makes the plugin again, which is its creator's work.
    trt.get_plugin_registry().register_creator(CircPadCreatorV2(CircPadPlugin), "")
    common.run(builder, network, precision, trt.DeviceType.GPU)
