package usage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// By says what the rows of a report stand for.
type By string

// The values of By.
const (
	ByVM      By = "vm"
	ByDomain  By = "domain"
	ByOwner   By = "owner"
	ByProject By = "project"
	ByGPU     By = "gpu"
	ByDay     By = "day"
)

// Kinds are the values of By, in the order in which they are named.
var Kinds = []By{ByVM, ByDomain, ByOwner, ByProject, ByGPU, ByDay}

// ParseBy parses a value of By; empty is ByVM.
func ParseBy(s string) (By, error) {
	if s == "" {
		return ByVM, nil
	}
	if by := By(s); slices.Contains(Kinds, by) {
		return by, nil
	}
	names := make([]string, len(Kinds))
	for i, k := range Kinds {
		names[i] = string(k)
	}
	return "", fmt.Errorf("%s: want %s or %s", quote(s), strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
}

// Query asks for what was used from From on and before To.
type Query struct {
	From, To time.Time
	By       By
	// Only, if not empty, restricts the query to the subjects that have these texts. A domain may be
	// named by its UUID.
	Only Subject
}

// matches reports whether a subject is meant.
func (q *Query) matches(s Subject) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	o := &q.Only
	return same(o.VM, s.VM) && same(o.Owner, s.Owner) && same(o.Project, s.Project) && same(o.GPU, s.GPU) &&
		same(o.DomainUUID, s.DomainUUID) && (same(o.Domain, s.Domain) || strings.EqualFold(o.Domain, s.DomainUUID))
}

// Row is one line of a report. Of Subject it has what the rows stand for.
type Row struct {
	Day     string // 2026-11-24, if the rows stand for days
	Subject Subject
	Sums
}

// Report answers a query.
type Report struct {
	// From and To are what the rows cover: what was asked for, extended to whole intervals, or to
	// whole hours or days where nothing finer is kept any more.
	From, To time.Time
	By       By
	Rows     []Row
	Total    Sums
}

// part is a sum as a store returns it: of one subject, in the interval that starts at start.
type part struct {
	start   int64
	subject Subject
	sums    Sums
}

// group sums up parts as a query asks. Later parts are of later subjects, whose names are the newer
// ones.
func group(by By, parts []part) (rows []Row, total Sums) {
	at := make(map[Row]int)
	for _, p := range parts {
		total = total.Add(p.sums)
		identity, shown := keyOf(by, &p)
		i, ok := at[identity]
		if !ok {
			i = len(rows)
			at[identity] = i
			rows = append(rows, shown)
		}
		sum := rows[i].Add(p.sums)
		rows[i] = shown
		rows[i].Sums = sum
	}
	slices.SortFunc(rows, func(a, b Row) int {
		x, y := &a.Subject, &b.Subject
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(x.VM, y.VM), cmp.Compare(x.Domain, y.Domain), cmp.Compare(x.DomainUUID, y.DomainUUID),
			cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.Project, y.Project), cmp.Compare(x.GPU, y.GPU))
	})
	return rows, total
}

// keyOf returns what distinguishes a part's row from others, and what it shows.
func keyOf(by By, p *part) (identity, shown Row) {
	s := &p.subject
	switch by {
	case ByDay:
		shown.Day = time.Unix(p.start, 0).UTC().Format(time.DateOnly)
	case ByOwner:
		shown.Subject.Owner = s.Owner
	case ByProject:
		shown.Subject.Project = s.Project
	case ByGPU:
		shown.Subject.GPU = s.GPU
	case ByDomain:
		shown.Subject = Subject{Domain: s.Domain, DomainUUID: s.DomainUUID, Owner: s.Owner, Project: s.Project}
		if s.DomainUUID != "" {
			return Row{Subject: Subject{DomainUUID: s.DomainUUID}}, shown
		}
		return Row{Subject: Subject{Domain: s.Domain}}, shown
	default:
		shown.Subject = *s
		shown.Subject.GPU = ""
		return Row{Subject: Subject{VM: s.VM, DomainUUID: s.DomainUUID}}, shown
	}
	return shown, shown
}

// merge sums up parts of the same subject and window, which several levels may have answered.
func merge(parts []part) (merged []part) {
	at := make(map[key]int)
	for _, p := range parts {
		k := key{p.start, p.subject}
		i, ok := at[k]
		if !ok {
			at[k] = len(merged)
			merged = append(merged, p)
			continue
		}
		merged[i].sums = merged[i].sums.Add(p.sums)
	}
	return merged
}
