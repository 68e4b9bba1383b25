package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// servePrometheus has a Prometheus answer at PROMETHEUS in a script, with two hosts of the job vgpud, of
// which one is down.
func servePrometheus(e *testscript.Env) {
	const series = `{"metric":{"__name__":"up","instance":"kvm7:19835"},"value":[1,"1"]},
		{"metric":{"__name__":"up","instance":"kvm9:19835"},"value":[1,"0"]},
		{"metric":{"__name__":"vgpud_gpu_healthy","gpu":"gpu0","instance":"kvm7:19835"},"value":[1,"1"]},
		{"metric":{"__name__":"vgpud_gpu_cordoned","gpu":"gpu0","instance":"kvm7:19835"},"value":[1,"1"]},
		{"metric":{"__name__":"vgpud_gpu_memory_bytes","gpu":"gpu0","instance":"kvm7:19835"},"value":[1,"17179869184"]},
		{"metric":{"__name__":"vgpud_gpu_busy_ratio","gpu":"gpu0","instance":"kvm7:19835"},"value":[1,"0.75"]},
		{"metric":{"__name__":"vgpud_vm_info","gpu":"gpu0","vm":"i1","project":"blue","instance":"kvm7:19835"},"value":[1,"1"]},
		{"metric":{"__name__":"vgpud_vm_weight","gpu":"gpu0","vm":"i1","instance":"kvm7:19835"},"value":[1,"60"]},
		{"metric":{"__name__":"vgpud_vm_busy_ratio","gpu":"gpu0","vm":"i1","instance":"kvm7:19835"},"value":[1,"0.25"]},
		{"metric":{"__name__":"vgpud_vm_memory_limit_bytes","gpu":"gpu0","vm":"i1","instance":"kvm7:19835"},"value":[1,"1073741824"]},
		{"metric":{"__name__":"vgpud_vm_budget_info","gpu":"gpu0","vm":"i1","period":"week","instance":"kvm7:19835"},"value":[1,"1"]},
		{"metric":{"__name__":"vgpud_vm_budget_hard_seconds","gpu":"gpu0","vm":"i1","instance":"kvm7:19835"},"value":[1,"3600"]},
		{"metric":{"__name__":"vgpud_vm_budget_used_seconds","gpu":"gpu0","vm":"i1","instance":"kvm7:19835"},"value":[1,"90"]}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.PostFormValue("query")
		found := ""
		switch {
		case r.URL.Path != "/api/v1/query":
			http.NotFound(w, r)
			return
		case strings.Contains(query, `\"`):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"status":"error","errorType":"bad_data","error":"parse error"}`) // the client notices
			return
		case strings.Contains(query, `job="vgpud"`):
			found = series
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[`+found+`]}}`) // the client notices
	}))
	e.Setenv("PROMETHEUS", s.URL)
	e.Defer(s.Close)
}
