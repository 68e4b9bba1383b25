package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubernetes.yaml")
	for text, wrong := range map[string]string{
		"node: node1\nuid: 107\nkeep: {share: 10}": "",
		"nod: node1":         "nod",
		"poll: 2h":           "poll",
		"socket: vgpud.sock": "absolute",
		"uid: -1":            "uid",
		"keep: {share: 101}": "keep.share",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readConfig(path)
		switch {
		case wrong == "" && (err != nil || c.Node != "node1" || *c.UID != 107 || c.Poll != time.Second):
			t.Errorf("%s: %+v, %v", text, c, err)
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: %v, want an error that names %s", text, err, wrong)
		}
	}
	if _, err := readConfig(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a configuration that is named must be there")
	}
	// The example's comments hold the defaults, beside keep and what has none.
	b, err := os.ReadFile("../../deploy/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile(`(?m)^#([a-z]|  )`).ReplaceAllString(string(b), "$1")
	if err := os.WriteFile(path, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	defaults := config{Kubeconfig: got.Kubeconfig, Metrics: got.Metrics, Node: got.Node, UID: got.UID, GID: got.GID, Keep: got.Keep}
	if err := defaults.complete(); err != nil || !reflect.DeepEqual(got, defaults) {
		t.Errorf("the example has %+v, the defaults are %+v: %v", got, defaults, err)
	}
}
