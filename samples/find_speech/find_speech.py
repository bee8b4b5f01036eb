"""Finds where somebody speaks: python find_speech.py [SOUND.wav] [--picture speech.png]

Without a sound, eSpeak NG (apt-get install espeak-ng) speaks three sentences with pauses.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import wave
from math import gcd

import numpy as np
import operators  # noqa: F401  (registers it)
from model import FRAME, RATE, speech_model
from PIL import Image, ImageDraw
from scipy.signal import resample_poly

import opwright

SENTENCES = [
    "A loop whose body is an engine.",
    "Seven wizards read the map.",
    "Nobody spoke for a while.",
]


def read(path: str) -> np.ndarray:
    """FP32 in [-1, 1] at 16 kHz, of a WAV file of 16 bits."""
    with wave.open(path) as sound:
        if sound.getsampwidth() != 2:
            raise SystemExit(f"{path} has {8 * sound.getsampwidth()} bits; expected 16")
        frames = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
        signal = frames.reshape(-1, sound.getnchannels()).mean(1, dtype=np.float32) / 32768
        common = gcd(RATE, sound.getframerate())
        return resample_poly(signal, RATE // common, sound.getframerate() // common).astype("f")


def spoken() -> np.ndarray:
    if shutil.which("espeak-ng") is None:
        raise SystemExit("name a WAV file, or install espeak-ng, which speaks one")
    hiss = np.random.default_rng(0)
    parts = [np.zeros(RATE, np.float32)]
    for text in SENTENCES:
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            subprocess.run(["espeak-ng", "-v", "en-gb", "-w", file.name, text], check=True)
            parts += [read(file.name), np.zeros(RATE, np.float32)]
    signal = np.concatenate(parts)
    return signal + hiss.normal(0, 0.002, signal.size).astype(np.float32)


def find(engine, signal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds [segments, 2], and the probability of speech in each frame."""
    whole = np.pad(signal, (0, -signal.size % FRAME))
    found = engine(whole)
    return found["segments"] * (FRAME / RATE), found["speech_probs"]


def drawn(signal: np.ndarray, segments: np.ndarray, probabilities: np.ndarray) -> Image.Image:
    width, height = 900, 220
    picture = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(picture)
    at = lambda seconds: seconds * RATE / signal.size * width  # noqa: E731
    for begin, end in segments:
        draw.rectangle((at(begin), 0, at(end), height), fill=(215, 235, 215))
    columns = np.array_split(np.abs(signal), width)
    for x, column in enumerate(columns):
        tall = column.max() / np.abs(signal).max() * 60
        draw.line((x, 70 - tall, x, 70 + tall), (70, 90, 140))
    x = np.arange(probabilities.size) * FRAME / signal.size * width
    draw.line(list(zip(x, 210 - probabilities * 60)), (190, 60, 40), 2)
    return picture


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("sound", nargs="?")
    options.add_argument("--picture", help="where the sound with what was found is drawn")
    chosen = options.parse_args()
    signal = read(chosen.sound) if chosen.sound else spoken()
    lengths = tuple((FRAME * count,) for count in (1, 300, 20000))
    engine = opwright.build(speech_model(), shapes={"samples": lengths}, device="cpu")
    segments, probabilities = find(engine, signal)
    print(f"{signal.size / RATE:.1f} s, {len(segments)} stretches of speech")
    for begin, end in segments:
        print(f"{begin:7.2f} to {end:6.2f} s")
    if chosen.picture:
        drawn(signal, segments, probabilities).save(chosen.picture)


if __name__ == "__main__":
    main()
