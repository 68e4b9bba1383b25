package domain

import (
	"cmp"
	"strings"

	"vgpud/mediator/api"
)

// Account names who pays for a domain's usage.
type Account struct{ Owner, Project string }

// The attributes of <vgpud:devices> that name the account.
const (
	ownerAttr   = "owner"
	projectAttr = "project"
)

// novaNamespaces is the prefix of the namespaces of Nova's element, of all versions.
const novaNamespaces = "http://openstack.org/xmlns/libvirt/nova/"

// AccountOf returns the account that a domain's metadata names. Attributes of vgpud's element come
// first, then those of Nova's. Texts that can't be shown are cleaned, since tenants may have chosen
// them.
func AccountOf(src []byte) (Account, error) {
	d, err := parseDomain(src)
	if err != nil {
		return Account{}, err
	}
	return d.account(), nil
}

func (d *document) account() Account {
	own := d.ownAccount()
	var nova Account
	for _, e := range d.metadata() {
		if strings.HasPrefix(e.name.Space, novaNamespaces) && e.name.Local == "instance" {
			nova = novaAccount(e)
		}
	}
	return Account{cmp.Or(own.Owner, nova.Owner), cmp.Or(own.Project, nova.Project)}
}

// metadata returns the elements of the domain's metadata.
func (d *document) metadata() []*element {
	if m := d.root.child("metadata"); m != nil {
		return m.children
	}
	return nil
}

// novaAccount reads <nova:owner>. Its users and projects are known by UUID, since Keystone has names
// that are unique in one of its domains only; a name is taken if there is no UUID.
func novaAccount(instance *element) (a Account) {
	for _, owner := range instance.children {
		if !owner.is(instance.name.Space, "owner") {
			continue
		}
		for _, e := range owner.children {
			id := cmp.Or(e.attr("uuid"), e.value())
			switch {
			case e.is(instance.name.Space, "user"):
				a.Owner = api.CleanText(id)
			case e.is(instance.name.Space, "project"):
				a.Project = api.CleanText(id)
			}
		}
	}
	return a
}

// attributes formats the account for <vgpud:devices>.
func (a Account) attributes() string {
	s := ""
	if a.Owner != "" {
		s += " " + ownerAttr + `="` + escape(a.Owner) + `"`
	}
	if a.Project != "" {
		s += " " + projectAttr + `="` + escape(a.Project) + `"`
	}
	return s
}

// ownAccount returns the account that vgpud's element names.
func (d *document) ownAccount() Account {
	for _, e := range d.metadata() {
		if e.is(Namespace, devicesName) {
			return Account{api.CleanText(e.attr(ownerAttr)), api.CleanText(e.attr(projectAttr))}
		}
	}
	return Account{}
}
