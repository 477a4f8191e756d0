# The command line in a slim image, for a user without rights. Two targets:
#   docker build --target plain -t pulsar-meta .        # everything but Spark
#   docker build --target java -t pulsar-meta:java .    # with Java 17 and pyspark
FROM python:3.13-slim-bookworm AS build
WORKDIR /source
COPY . .
# hadolint ignore=DL3013
RUN python -m venv /opt/pulsar-meta \
    && /opt/pulsar-meta/bin/pip install --no-cache-dir ".[all]"

FROM build AS build-plain
RUN /opt/pulsar-meta/bin/pip uninstall --yes pyspark py4j

FROM python:3.13-slim-bookworm AS plain
RUN useradd --create-home --uid 10000 pulsar
COPY --from=build-plain /opt/pulsar-meta /opt/pulsar-meta
ENV PATH=/opt/pulsar-meta/bin:$PATH
USER 10000
WORKDIR /home/pulsar
ENTRYPOINT ["pulsar-meta"]
CMD ["--help"]

FROM python:3.13-slim-bookworm AS java
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10000 pulsar
COPY --from=build /opt/pulsar-meta /opt/pulsar-meta
ENV PATH=/opt/pulsar-meta/bin:$PATH
USER 10000
WORKDIR /home/pulsar
ENTRYPOINT ["pulsar-meta"]
CMD ["--help"]
