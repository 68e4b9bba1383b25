package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"vgpud/mediator/libvirt"
	"vgpud/mediator/libvirt/domain"
)

// fakeLibvirt is vgpu-libvirt with a libvirt whose domains are the files NAME.xml of its working
// directory. Domains whose names start with "running" run, and those that start with "transient"
// have no definition.
func fakeLibvirt() {
	err := libvirt.Serve(context.Background(), os.Stdin, os.Stdout, func() (libvirt.Hypervisor, error) {
		if uri := os.Args[1]; uri != libvirt.DefaultURI {
			return nil, fmt.Errorf("no connection driver available for %s", uri)
		}
		return fileHypervisor{libvirt.NewEventQueue()}, nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type fileHypervisor struct{ *libvirt.EventQueue }

func (fileHypervisor) Domain(key string, v libvirt.View) (libvirt.Domain, error) {
	if name, ok := domainByUUID(key); ok {
		key = name
	}
	b, err := os.ReadFile(key + ".xml")
	if errors.Is(err, fs.ErrNotExist) {
		return libvirt.Domain{}, fmt.Errorf("%w: Domain not found: no domain with matching name '%s'", libvirt.ErrNoDomain, key)
	}
	if err != nil {
		return libvirt.Domain{}, err
	}
	if v != libvirt.Persistent {
		return libvirt.Domain{}, fmt.Errorf("asked for %q", v)
	}
	return libvirt.Domain{Name: key, Active: strings.HasPrefix(key, "running"), Persistent: !strings.HasPrefix(key, "transient"), XML: string(b)}, nil
}

// domainByUUID returns the name of the domain with a UUID. A domain's file is called by its name.
func domainByUUID(uuid string) (name string, ok bool) {
	files, _ := filepath.Glob("*.xml") // the pattern is good
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "<uuid>"+uuid+"</uuid>") {
			return strings.TrimSuffix(f, ".xml"), true
		}
	}
	return "", false
}

func (fileHypervisor) Define(xml string) error {
	d, err := domain.Parse([]byte(xml))
	if err != nil {
		return err
	}
	return os.WriteFile(d.Name+".xml", []byte(xml), 0o600)
}

func (fileHypervisor) Domains() ([]libvirt.Domain, error) {
	return []libvirt.Domain{{Name: "web1"}, {Name: "running1"}}, nil
}

func (fileHypervisor) Close() error { return nil }
