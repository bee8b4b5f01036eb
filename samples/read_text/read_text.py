"""Reads the text of an image: python read_text.py [IMAGE] [--picture page.png]

Without an image it renders a page of its own.
"""

from __future__ import annotations

import argparse

import numpy as np
import operators  # noqa: F401  (registers them)
from models import HEIGHT, detector, recognizer
from PIL import Image, ImageDraw, ImageFont

import opwright

LINES = [
    "A custom operator and the model",
    "around it become one engine file.",
    "Invoice 2048-77     June 2026",
    "Total: 1,592.00 EUR",
]


def rendered_page() -> Image.Image:
    page = Image.new("RGB", (640, 416), "white")
    draw = ImageDraw.Draw(page)
    for i, text in enumerate(LINES):
        draw.text((32, 40 + 90 * i), text, "black", ImageFont.load_default(30))
    return page


def padded(page: np.ndarray) -> np.ndarray:
    """White up to multiples of 32, which the detector needs."""
    height, width = (-(-n // 32) * 32 for n in page.shape[:2])
    whole = np.full((height, width, 3), 255, np.uint8)
    whole[: page.shape[0], : page.shape[1]] = page
    return whole


class Reader:
    def __init__(self) -> None:
        sides = (32, 640, 1280)
        self.detect = opwright.build(
            detector(), shapes={"image": tuple((n, n, 3) for n in sides)}, device="cpu"
        )
        model, self.alphabet = recognizer()
        widths = tuple((HEIGHT, n, 3) for n in (16, 320, 1600))
        self.recognize = opwright.build(model, shapes={"image": widths}, device="cpu")

    def boxes(self, page: Image.Image) -> np.ndarray:
        return self.detect(padded(np.asarray(page)))

    def line(self, page: Image.Image, box: np.ndarray) -> tuple[str, float]:
        """The text in a box, and how sure the recognizer is of its letters in the mean."""
        left, top, right, bottom = map(int, box)
        width = min(max(round((right - left) * HEIGHT / (bottom - top)), 16), 1600)
        image = page.crop((left, top, right, bottom)).resize((width, HEIGHT), Image.BICUBIC)
        found = self.recognize(np.asarray(image))
        text = "".join(self.alphabet[letter] for letter in found["letters"])
        return text, float(found["sure"].mean()) if len(text) else 0.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("image", nargs="?")
    options.add_argument("--picture", help="where the page with its boxes and texts is written")
    chosen = options.parse_args()
    page = Image.open(chosen.image).convert("RGB") if chosen.image else rendered_page()
    page.thumbnail((1280, 1280))
    reader = Reader()
    picture = page.copy()
    draw = ImageDraw.Draw(picture)
    for box in reader.boxes(page):
        text, sure = reader.line(page, box)
        print(f"{','.join(map(str, box)):20} {sure:.2f}  {text}")
        draw.rectangle(tuple(map(int, box)), outline=(200, 30, 30), width=2)
        shown = text.encode("latin-1", "replace").decode("latin-1")
        draw.text(
            (int(box[0]) + 4, int(box[3]) + 1), shown, (30, 60, 200), ImageFont.load_default(15)
        )
    if chosen.picture:
        picture.save(chosen.picture)


if __name__ == "__main__":
    main()
