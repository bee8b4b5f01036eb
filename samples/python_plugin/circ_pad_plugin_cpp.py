"""Circular padding with the C++ library that circ_plugin_cpp/ builds."""

import common

import opwright as trt

# For `python -m opwright check circ_pad_plugin_cpp.py --plugins build/libcirc_pad_plugin.so`.
creator = trt.get_plugin_registry().get_creator("CircPadPlugin", "1", "")
if creator is not None:
    common.add_example(creator)

if __name__ == "__main__":
    parser = common.argument_parser(__doc__)
    parser.add_argument(
        "--plugin-lib", required=True, help="the library: build/libcirc_pad_plugin.so"
    )
    args = parser.parse_args()
    trt.get_plugin_registry().load_library(args.plugin_lib)
    builder = trt.Builder(trt.Logger(trt.Logger.WARNING))
    model = common.make_model(args.precision)
    common.run(builder, common.parse(builder, model), args.precision)
