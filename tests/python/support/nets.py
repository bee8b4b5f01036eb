"""A network with layers that many tests need, such as those of loops and branches."""

import tempfile

import numpy as np

import opwright as trt

CPU = trt.DeviceType.CPU


def loaded(data, **options):
    """Loads a stored engine as the same object that `build` returns."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(memoryview(data))
        file.flush()
        return trt.load(file.name, **options)


class Net:
    """A network with methods for layers that many tests need."""

    def __init__(self):
        self.logger = trt.Logger(trt.Logger.ERROR)
        self.network = trt.Builder(self.logger).create_network()

    def input(self, name, dtype, shape):
        return self.network.add_input(name, dtype, shape)

    def constant(self, value, dtype=np.float32):
        value = np.asarray(value, dtype)
        return self.network.add_constant(value.shape, value).get_output(0)

    def binary(self, a, b, op="SUM"):
        op = getattr(trt.ElementWiseOperation, op)
        return self.network.add_elementwise(a, b, op).get_output(0)

    def build(self, outputs, shapes=None, flags=(), device=CPU, **options):
        for i, tensor in enumerate(outputs):
            tensor.name = f"y{i}"
            self.network.mark_output(tensor)
        if flags:
            builder = trt.Builder(self.logger)
            config = builder.create_builder_config()
            config.default_device_type = CPU
            for flag in flags:
                config.set_flag(flag)
            engine = loaded(builder.build_serialized_network(self.network, config))
        else:
            engine = trt.build(self.network, shapes=shapes, timing=False, device=device, **options)

        def run(**inputs):
            result = engine(**inputs)
            return list(result.values()) if isinstance(result, dict) else [result]

        run.engine = engine
        return run
