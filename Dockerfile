# Two images: `service` dispatches and has every command that needs no Spark; `spark` has Java too,
# for rules, alerts, receipts and fan-outs.
#
#   make image        # or: docker build --target service -t pushlane .
#
# Everything from an index is asked for by hash (requirements/*.txt). Needs no BuildKit. Another base,
# by digest or from a registry of your own: --build-arg PYTHON_IMAGE=…; it is to be Debian with
# Python 3.11 or newer. Another index: --build-arg PIP_INDEX_URL=…
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

# What both images are on. tini is process 1: it hands on every signal, also one that comes before
# Python listens to it, and reaps what Spark leaves.
FROM ${PYTHON_IMAGE} AS runtime
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 pushlane \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/pushlane \
        --shell /usr/sbin/nologin pushlane \
    && install --directory --owner=10001 --group=10001 --mode=0750 /var/lib/pushlane
# The root may be read-only: whatever is written goes to /tmp and /var/lib/pushlane.
ENV PATH=/opt/pushlane/bin:$PATH \
    HOME=/tmp \
    PUSHLANE_DATA_DIR=/var/lib/pushlane \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/pushlane
EXPOSE 9095
STOPSIGNAL SIGTERM
# Kubernetes asks /livez and /readyz itself.
HEALTHCHECK NONE
ENTRYPOINT ["tini", "--", "pushlane"]
CMD ["--help"]

# setuptools comes first, by its own pin: it builds what has no wheel, and nothing is fetched for that.
FROM ${PYTHON_IMAGE} AS wheelhouse
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
RUN python -m venv /opt/pushlane
ENV PATH=/opt/pushlane/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/service.txt /source/requirements/
RUN sed -n '/^setuptools==/,/[^\\]$/p' /source/requirements/service.txt > /source/requirements/build.txt \
    && pip install --require-hashes --requirement /source/requirements/build.txt
RUN pip download --require-hashes --no-deps --no-build-isolation --dest /wheelhouse \
    --requirement /source/requirements/service.txt

FROM wheelhouse AS service-environment
RUN pip install --no-index --find-links /wheelhouse --require-hashes --no-build-isolation \
    --requirement /source/requirements/service.txt
COPY . /source
RUN pip install --no-index --no-deps --no-build-isolation /source && pip uninstall --yes pip

FROM wheelhouse AS spark-environment
COPY requirements/spark.txt /source/requirements/
RUN pip download --require-hashes --no-deps --no-build-isolation --dest /wheelhouse \
    --requirement /source/requirements/spark.txt
RUN pip install --no-index --find-links /wheelhouse --require-hashes --no-build-isolation \
    --requirement /source/requirements/spark.txt
COPY . /source
RUN pip install --no-index --no-deps --no-build-isolation /source && pip uninstall --yes pip

FROM runtime AS service
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="pushlane" \
      org.opencontainers.image.description="Dispatches pushes over Apache Pulsar" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=service-environment /opt/pushlane /opt/pushlane
USER 10001:10001

FROM runtime AS spark
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="pushlane-spark" \
      org.opencontainers.image.description="pushlane with Spark and Java: rules, alerts, receipts, fan-outs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY docker /usr/local/libexec
COPY --from=spark-environment /opt/pushlane /opt/pushlane
USER 10001:10001
