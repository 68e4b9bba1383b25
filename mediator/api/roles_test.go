package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"vgpud/mediator/access"
)

// TestChangesNeedAnOperator: a viewer reads everything and changes nothing; without a role nothing
// is answered.
func TestChangesNeedAnOperator(t *testing.T) {
	paths := map[string]access.Role{"GET /openapi.yaml": access.Viewer, "GET /metrics": access.Viewer}
	for _, rt := range routes {
		role := access.Operator
		if rt.method == http.MethodGet {
			role = access.Viewer
		}
		if rt.role != role {
			t.Errorf("%s %s needs role %v, want %v", rt.method, rt.path, rt.role, role)
		}
		paths[rt.method+" "+strings.ReplaceAll(rt.path, "{name}", "a")] = role
	}
	for _, has := range []access.Role{access.None, access.Viewer} {
		h := &host{vms: map[string]VM{"a": {Name: "a", Weight: 1}}}
		o := testOptions(has)
		o.Metrics = http.NotFoundHandler()
		for line, needs := range paths {
			if has >= needs {
				continue
			}
			method, path, _ := strings.Cut(line, " ")
			w := httptest.NewRecorder()
			Handler(h, o).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(`{"name": "b", "weight": 2}`)))
			if w.Code != http.StatusForbidden {
				t.Errorf("%s with role %v: %d, want 403", line, has, w.Code)
			}
			for _, say := range []string{line, "want role " + needs.String(), "has role " + has.String(), "access." + needs.String() + "s"} {
				if !strings.Contains(w.Body.String(), say) {
					t.Errorf("%s with role %v: %s does not say %q", line, has, w.Body, say)
				}
			}
		}
		if diff := cmp.Diff([]VM{{Name: "a", Weight: 1}}, h.VMs()); diff != "" {
			t.Errorf("role %v changed something:\n%s", has, diff)
		}
	}
}

// TestOpenAPIRoles compares the roles on the page with the routes'.
func TestOpenAPIRoles(t *testing.T) {
	var page struct {
		Paths map[string]map[string]struct {
			Role string `yaml:"x-role"`
		}
	}
	if err := yaml.Unmarshal(openAPI, &page); err != nil {
		t.Fatal(err)
	}
	for _, rt := range routes {
		op := page.Paths[rt.path][strings.ToLower(rt.method)]
		if op.Role != rt.role.String() {
			t.Errorf("%s %s: x-role %q, want %q", rt.method, rt.path, op.Role, rt.role)
		}
	}
}
