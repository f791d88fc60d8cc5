# Debian's Alertmanager where the real image has its own.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY alertmanager amtool busybox /bin/
COPY *.tmpl /usr/share/prometheus/alertmanager/
RUN ln -s /bin/busybox /usr/bin/wget && install -d -o 65534 -g 65534 /alertmanager
ENTRYPOINT ["/bin/alertmanager"]
