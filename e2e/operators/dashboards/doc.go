// Package dashboards tests what is in deploy/ for Prometheus and Grafana, with Debian's Prometheus:
// every query of the alert rules and of the dashboard is run on what Prometheus scraped from a
// running vgpud whose guests have work.
package dashboards
