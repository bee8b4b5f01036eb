# The Python package and the program `opwright`, on Debian 12, without a compiler.
#
#   docker build -t opwright .
#   docker run --rm -v "$PWD:/work" --user "$(id -u)" opwright build model.onnx -o model.engine
#   docker run --rm -v "$PWD:/work" --entrypoint python opwright program.py
#
# With the NVIDIA Container Toolkit `--gpus all` gives it the GPUs. Engines for these run as it is; building them
# takes NVRTC, too: USER root, RUN pip install nvidia-cuda-nvrtc in an image that is FROM this one.
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
      cmake flatbuffers-compiler g++ libcli11-dev libflatbuffers-dev libhwy-dev libprotozero-dev libxxhash-dev \
      ninja-build python3-dev python3-venv
RUN python3 -m venv /opt/opwright
WORKDIR /source
COPY . .
RUN /opt/opwright/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && /opt/opwright/bin/pip install --no-cache-dir /wheels/opwright-*.whl

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends libstdc++6 python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home opwright && install --directory --owner=opwright /work
COPY --from=build /opt/opwright /opt/opwright
ENV PATH=/opt/opwright/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER opwright
WORKDIR /work
ENTRYPOINT ["opwright"]
CMD ["--help"]
