# The service, without a compiler, a shell history or root. Everything comes from the hashed locks: the whole one
# builds the wheel, the image itself holds only what the service runs with.
FROM python:3.12-slim AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements.lock requirements.run.lock ./
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --only-binary :all: -r requirements.lock \
    && python -m venv /opt/halftone \
    && /opt/halftone/bin/pip install --require-hashes --only-binary :all: -r requirements.run.lock
COPY pyproject.toml README.md LICENSE ./
COPY service ./service
COPY migrations ./migrations
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/halftone/bin/pip install --no-deps /wheels/*.whl

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin halftone \
    && install -d -o halftone -g halftone -m 0700 /data /data/sources
COPY --from=build /opt/halftone /opt/halftone
ENV PATH=/opt/halftone/bin:$PATH \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HALFTONE_DATA_DIR=/data HALFTONE_HOST=0.0.0.0 HALFTONE_PORT=8000
USER halftone
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=15s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=12)"]
ENTRYPOINT ["halftone"]
CMD ["serve", "--migrate"]
