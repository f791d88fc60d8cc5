# No Grafana: answers the health route, and at /mounted the files that were mounted for it.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY busybox /bin/busybox
COPY grafana.sh /run.sh
RUN ln -s /bin/busybox /usr/bin/wget && install -d -o 472 -g 0 /var/lib/grafana
ENTRYPOINT ["sh", "/run.sh"]
