# No Python: enough to check a model that is there, and to say what is missing for one that is not.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
