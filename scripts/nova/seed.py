"""Fills an empty Keystone: the catalog, the services' users, one with vgpu-placement's rights,
and a tenant. Keystone must answer on its port."""
import requests

KEYSTONE = "http://127.0.0.1:5000/v3"
SERVICES = {
    "placement": ("placement", "http://127.0.0.1:8778"),
    "image": ("glance", "http://127.0.0.1:9292"),
    "compute": ("nova", "http://127.0.0.1:8774/v2.1"),
    "network": ("neutron", "http://127.0.0.1:9696"),
}
session = requests.Session()


def call(method, path, **body):
    r = session.request(method, KEYSTONE + path, json=body or None)
    r.raise_for_status()
    return r.json() if r.content else None


def named(kind, name):
    return call("GET", f"/{kind}?name={name}")[kind][0]["id"]


def user(name, project, *roles):
    made = call("POST", "/users", user={"name": name, "password": "secret", "domain_id": "default"})
    for role in roles:
        call("PUT", f"/projects/{project}/users/{made['user']['id']}/roles/{named('roles', role)}")


r = session.post(KEYSTONE + "/auth/tokens", json={"auth": {
    "identity": {"methods": ["password"], "password": {
        "user": {"name": "admin", "domain": {"id": "default"}, "password": "secret"}}},
    "scope": {"project": {"name": "admin", "domain": {"id": "default"}}}}})
r.raise_for_status()
session.headers["X-Auth-Token"] = r.headers["X-Subject-Token"]

service = call("POST", "/projects", project={"name": "service", "domain_id": "default"})["project"]["id"]
demo = call("POST", "/projects", project={"name": "demo", "domain_id": "default"})["project"]["id"]
call("POST", "/roles", role={"name": "vgpud"})
for name in ("nova", "placement", "glance", "neutron"):
    user(name, service, "admin", "service")
user("vgpud", service, "vgpud")
user("demo", demo, "member")
for kind, (name, url) in SERVICES.items():
    made = call("POST", "/services", service={"type": kind, "name": name})["service"]["id"]
    for interface in ("public", "internal", "admin"):
        call("POST", "/endpoints", endpoint={
            "service_id": made, "interface": interface, "url": url, "region_id": "RegionOne"})
