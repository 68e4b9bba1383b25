"""A Neutron without networks: enough for Nova's instances with "networks": "none"."""
import http.server
import json


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        kind = self.path.split("?")[0].rstrip("/").split("/")[-1].replace("-", "_")
        body = json.dumps({kind: []}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", 9696), Handler).serve_forever()
