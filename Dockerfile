# emul in an image of its own: `docker build -t emul .`, then `docker run --rm -v "$PWD:/work" emul run SCENARIO`.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
# e.g. --build-arg EXTRAS=report,stats
ARG EXTRAS=report
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --extra-index-url "${TORCH_INDEX}" "$(ls /wheels/emul-*.whl)[${EXTRAS}]" \
    && rm -r /wheels \
    && useradd --create-home emul \
    && mkdir /work && chown emul /work
USER emul
WORKDIR /work
ENTRYPOINT ["emul"]
CMD ["--help"]
