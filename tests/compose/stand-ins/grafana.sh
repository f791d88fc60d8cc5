set -eu
mkdir -p /tmp/www/api
echo '{"database": "ok"}' >/tmp/www/api/health
find /etc/grafana/provisioning /etc/sightline /usr/share/grafana -type f -exec sha256sum {} + >/tmp/www/mounted
touch /var/lib/grafana/grafana.db
exec busybox httpd -f -p 3000 -h /tmp/www
