"""Complex numbers and Fourier transforms of PyTorch, as engines and in torch.compile, against eager PyTorch."""

from __future__ import annotations

import logging

import pytest

import opwright

torch = pytest.importorskip("torch")
nn = torch.nn


pytestmark = pytest.mark.usefixtures("no_gradients")


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def check(got, want):
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def check_both(function, *args, caplog):
    """As one engine by both ways. Complex arguments and results of `build` are as by view_as_real."""
    module = Function(function)
    want = function(*args)
    with caplog.at_level(logging.INFO, logger="opwright.torch"):
        check(torch.compile(module, backend="opwright")(*args), want)
    assert "1 engines, 0 operators stay" in caplog.text

    def plain(tensor):
        return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor

    engine = opwright.build(module, args, device="cpu", timing=False)
    check(engine(*map(plain, args)), plain(want))


fft = torch.fft
TRANSFORMS = {
    "rfft": lambda x: fft.rfft(x),
    "rfft of an axis": lambda x: fft.rfft(x, dim=1, norm="ortho"),
    "irfft": lambda x: fft.irfft(fft.rfft(x, dim=1), dim=1),
    "irfft to odd": lambda x: fft.irfft(fft.rfft(x), n=5),
    "fft": lambda x: fft.fft(x, norm="forward"),
    "ifft": lambda x: fft.ifft(fft.fft(x) * 2, norm="backward"),
    "fft2": lambda x: fft.fftshift(fft.fft2(x, norm="ortho")).imag,
    "fftn": lambda x: fft.fftn(x, dim=(1, 2)).real,
    "rfftn": lambda x: fft.rfftn(x, dim=(2, 0, 1)),
    "irfftn": lambda x: fft.irfftn(fft.rfftn(x), s=(3, 8, 6)),
    "irfft2": lambda x: fft.irfft2(fft.rfft2(x, norm="forward"), norm="forward"),
    "hfft": lambda x: fft.hfft(x, n=6),
    "ihfft": lambda x: fft.ihfft(x),
    "padded": lambda x: fft.rfft(x, n=9),
    "cut": lambda x: fft.fft(x, n=4, dim=1),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name, caplog):
    check_both(TRANSFORMS[name], torch.randn(3, 8, 6), caplog=caplog)


@pytest.mark.parametrize("points", [1, 2, 7, 512, 513, 1000, 1021, 2048, 4800, 16384])
def test_lengths(points, caplog):
    """Short ones are one product, long ones are split; 1021 is a prime number."""
    x = torch.randn(2, points)
    scale = points**0.5
    check_both(lambda x: fft.rfft(x) / scale, x, caplog=caplog)
    z = torch.randn(2, points // 2 + 1, dtype=torch.complex64)
    inverse = opwright.build(Function(lambda z: fft.irfft(z, n=points)), (z,), device="cpu")
    check(inverse(torch.view_as_real(z)), fft.irfft(z, n=points))
    whole = torch.randn(2, points, dtype=torch.complex64)
    engine = opwright.build(Function(lambda z: fft.ifft(z) * scale), (whole,), device="cpu")
    check(torch.view_as_complex(engine(torch.view_as_real(whole))), fft.ifft(whole) * scale)


Z, Y = (
    torch.randn(3, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(i))
    for i in range(2)
)
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
ARITHMETIC = {
    "add": (lambda z, y: z + y, Z, Y),
    "add a number": (lambda z: z + (1 - 2j), Z),
    "add real numbers": (lambda z, x: torch.add(z, x, alpha=3), Z, X),
    "add broadcasts": (lambda z, x: z[:, :1] + x, Z, X),
    "sub": (lambda z, y: z - y, Z, Y),
    "rsub": (lambda z: 2 - z, Z),
    "mul": (lambda z, y: z * y, Z, Y),
    "mul of real": (lambda z, x: x * z, Z, X),
    "mul of integers": (lambda z: z * torch.arange(4), Z),
    "turns": (lambda x: torch.cos(x) + 1j * torch.sin(x), X),
    "div": (lambda z, y: z / y, Z, Y),
    "div by real": (lambda z, x: z / x, Z, X),
    "div a number": (lambda z: (1 + 2j) / z, Z),
    "reciprocal": (lambda z: z.reciprocal(), Z),
    "neg": (lambda z: -z, Z),
    "conj": (lambda z, y: torch.conj(z) * y, Z, Y),
    "abs": (lambda z: z.abs(), Z * 1e-12),
    "abs of much": (lambda z: (z * 1e30).abs() / 1e30, Z),
    "angle": (lambda z: z.angle(), Z),
    "angle of real": (lambda x: x.angle(), X),
    "polar": (lambda x: torch.polar(x.abs(), x), X),
    "complex": (lambda x: torch.complex(x, x * 2), X),
    "exp": (lambda z: z.exp(), Z),
    "log": (lambda z: z.log(), Z),
    "sgn": (lambda z: torch.sgn(torch.cat([z, z * 0])), Z),
    "power": (lambda z: z**3, Z),
    "real": (lambda z: z.real + z.imag * 2, Z),
    "mm": (lambda z, y: z @ y.mT, Z, Y),
    "adjoint": (lambda z, y: z @ y.mH, Z, Y),
    "bmm": (lambda z, y: torch.bmm(z[None], y.mT[None]), Z, Y),
    "einsum": (lambda z, y: torch.einsum("bi,oi->bo", z, y), Z, Y),
    "sum": (lambda z: z.sum(1) + z.mean(), Z),
    "moves": (lambda z: torch.stack([z.flip(0), z.roll(1, 1)]).permute(2, 0, 1).reshape(2, -1), Z),
    "parts": (lambda z, y: torch.cat([part * 2 for part in z.split(2, 1)] + [y[:, 1:]], 1), Z, Y),
    "pad": (lambda z: nn.functional.pad(z, (1, 2)), Z),
    "choice": (lambda z, y, x: torch.where(x > 0, z, y), Z, Y, X),
    "gather": (lambda z: z[torch.tensor([2, 0])].index_select(1, torch.tensor([3, 3, 1])), Z),
    "view": (lambda x: torch.view_as_complex(x.reshape(3, 2, 2)) * 1j, X),
    "zeros": (lambda z: torch.zeros_like(z) + z.new_ones(4) + torch.full((3, 4), 1 - 3j), Z),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name, caplog):
    function, *args = ARITHMETIC[name]
    check_both(function, *args, caplog=caplog)


WINDOW = torch.hann_window(64)
SIGNALS = {
    "spectrogram": lambda x: torch.stft(x, 64, 16, window=WINDOW, return_complex=True).abs() ** 2,
    "phases": lambda x: torch.stft(x, 64, 16, window=WINDOW, return_complex=True).angle().cos(),
    "and back": lambda x: torch.istft(
        torch.stft(x, 64, 16, window=WINDOW, return_complex=True) * 2, 64, 16, window=WINDOW
    ),
    "overlap": lambda x: nn.functional.fold(
        fft.irfft(fft.rfft(x.unfold(1, 64, 16))).mT, (1, 400), (1, 64), stride=(1, 16)
    ),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_short_time_transforms(name, caplog):
    check_both(SIGNALS[name], torch.randn(2, 400), caplog=caplog)


class Rotary(nn.Module):
    """Rotary embedding as Llama's first code has it."""

    def __init__(self):
        super().__init__()
        angles = torch.outer(torch.arange(16.0), 0.1 ** torch.arange(4.0))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        pairs = torch.view_as_complex(self.linear(x).unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * self.turns[: x.shape[1]]).flatten(-2)


class Spectral(nn.Module):
    """The layer of Fourier neural operators, whose weights are complex."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 5, 4, 4, dtype=torch.cfloat))

    def forward(self, x):
        bins = fft.rfft2(x)
        out = torch.zeros(x.shape[0], 5, 8, 5, dtype=torch.cfloat)
        out[:, :, :4, :4] = torch.einsum("bixy,ioxy->boxy", bins[:, :, :4, :4], self.weight)
        return fft.irfft2(out, s=x.shape[-2:])


@pytest.mark.parametrize("make, shape", [(Rotary, (2, 9, 8)), (Spectral, (2, 3, 8, 8))])
def test_modules(make, shape, caplog):
    module, x = make().eval(), torch.randn(shape)
    with caplog.at_level(logging.INFO, logger="opwright.torch"):
        check(torch.compile(module, backend="opwright")(x), module(x))
    assert "1 engines, 0 operators stay" in caplog.text
    batch = torch.export.Dim("batch", min=1, max=8)
    engine = opwright.build(module, (x,), dynamic_shapes=({0: batch},), device="cpu", timing=False)
    for extent in (1, 8):
        x = torch.randn(extent, *shape[1:])
        check(engine(x), module(x))


def test_complex_numbers_pass_between_engines(caplog):
    def function(z):
        return torch.lgamma((z * 2j + 1).abs() + 1) * z.conj() * 2

    compiled = torch.compile(Function(function), backend="opwright", dynamic=True)
    for extent in (4, 7):
        z = torch.randn(extent, 3, dtype=torch.complex64)
        check(compiled(z), function(z))
        check(compiled(z.mT), function(z.mT))
        check(compiled(z.conj()), function(z.conj()))


def test_what_is_not_computed_stays_or_is_refused(caplog):
    z = torch.randn(3, 4, dtype=torch.complex64)
    module = Function(lambda z: (z * 2 + 1).tan() * 3 - 1)
    check(torch.compile(module, backend="opwright", options={"min_nodes": 1})(z), module(z))
    assert "tan" in caplog.text and "complex numbers" in caplog.text
    with pytest.raises(opwright.Error, match="tan.*complex numbers"):
        opwright.build(module, (z,), device="cpu")
    wide = torch.randn(3, 4, dtype=torch.complex128)
    with pytest.raises(opwright.Error, match="complex128"):
        opwright.build(Function(lambda z: z * 2), (wide,), device="cpu")
