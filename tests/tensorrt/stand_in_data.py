"""The data that TensorRT's samples look for: a classifier of pictures by their colour under the name ResNet50.onnx.

Theirs comes with the binary package. This one has layers that run on a GPU, and gives the pictures their labels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

COLORS = {
    "binoculars": (20, 30, 60),
    "reflex camera": (200, 40, 30),
    "tabby tiger cat": (190, 150, 90),
}
PICTURES = ("binoculars.jpeg", "reflex_camera.jpeg", "tabby_tiger_cat.jpg")


def make(folder: Path) -> Path:
    """Writes model, pictures and labels.

    :returns: the folder, which is made.
    """
    import onnx
    from onnx import numpy_helper, parser
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    model = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[1, 3, 224, 224] "gpu_0/data_0") => (float[1, 3] scores) {
            mean = ReduceMean <axes = [2, 3], keepdims: int = 0> ("gpu_0/data_0")
            color = Reshape (mean, one_color)
            difference = Sub (color, colors)
            square = Mul (difference, difference)
            distance = ReduceSum <keepdims: int = 0> (square, axes)
            scores = Neg (distance)
        }""".replace('"gpu_0/data_0"', "picture")
    )
    for value in (*model.graph.input, *model.graph.node):
        if isinstance(value, onnx.NodeProto):
            names = ["gpu_0/data_0" if name == "picture" else name for name in value.input]
            value.input[:] = names
        else:
            value.name = "gpu_0/data_0"
    colors = (np.array(list(COLORS.values()), np.float32) / 255 - 0.45) / 0.225
    for name, values in (
        ("colors", colors[None]),
        ("one_color", np.array([1, 1, 3], np.int64)),
        ("axes", np.array([2], np.int64)),
    ):
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.checker.check_model(model)
    onnx.save(model, str(folder / "ResNet50.onnx"))
    rng = np.random.default_rng(1)
    for name, color in zip(PICTURES, COLORS.values()):
        picture = np.clip(rng.normal(color, 12, (256, 320, 3)), 0, 255)
        Image.fromarray(picture.astype(np.uint8)).save(folder / name)
    (folder / "class_labels.txt").write_text("\n".join(COLORS))
    return folder
