package nova

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"
)

var scaleDir = flag.String("scale", "", "measure Placement with many hosts, and write nova-scale.md to this `directory`")

// The fleet that Placement is measured with, and what is asked for.
const (
	scaleHosts = 1000
	scaleGPUs  = 8 // a host
	// scaleLimit is the number of candidates that Nova asks for ([scheduler]
	// max_placement_results).
	scaleLimit = 1000
	// scaleGoal is the 99th percentile that is aimed at.
	scaleGoal = time.Second
)

// scaleSettings are the settings of Placement that are measured: lines of its section [placement].
var scaleSettings = []struct {
	about, lines string
	flavors      []int // their shares
	asks         int   // how often each question is asked
}{
	{"as installed", "", []int{50}, 100},
	{"limited", "max_allocation_candidates = 2000\nallocation_candidates_generation_strategy = breadth-first\n", []int{50}, 100},
}

// scaleRow is the measurement of one question.
type scaleRow struct {
	Settings, Flavor     string
	Asks                 int
	Candidates, Hosts    int
	Processor            time.Duration // that each answer took in the mean
	Median, P99, Longest time.Duration
	Met                  string
}

// TestScale posts the providers of 1,000 hosts with 8 GPUs each to Placement, asks where flavors fit,
// as Nova's scheduler does, and writes how long the answers took. It fails if an answer is wrong, not
// if it is slow.
func TestScale(t *testing.T) {
	if *scaleDir == "" {
		t.Skip("part of `make bench-nova`: -scale is not set")
	}
	b := startBed(t, 0, 0)
	admin := newClient(b, "admin", "admin")
	admin.microversion = "1.36" // Nova's
	awaitPlacement(t, admin)
	begin := time.Now()
	postFleet(t, b, admin)
	t.Logf("%d hosts are in Placement after %v", scaleHosts, time.Since(begin))
	load := loadAverage(t)
	var rows []scaleRow
	for _, s := range scaleSettings {
		b.restartPlacement(s.lines)
		for _, shares := range s.flavors {
			rows = append(rows, ask(t, b, admin, s.about, shares, s.asks))
		}
	}
	writeScale(t, packages(t, b), load, rows)
}

// postFleet makes the fleet's providers: for each host one with processors and memory, and one for
// each GPU. The first host's are posted as vgpu-placement does. The others' are copied from them in
// Placement's database: posting them takes a quarter of an hour and leaves the same there.
func postFleet(tb testing.TB, b *bed, c *client) {
	tb.Helper()
	for _, path := range []string{"/resource_classes/" + share, "/resource_classes/" + memory, "/traits/CUSTOM_VGPUD", "/traits/CUSTOM_VGPUD_SOFTGPU"} {
		c.must(http.MethodPut, placementURL+path, nil, nil)
	}
	node := provider{UUID: providerUUID("fleet", "host0000"), Name: "host0000"}
	c.must(http.MethodPost, placementURL+"/resource_providers", map[string]string{"name": node.Name, "uuid": node.UUID}, nil)
	c.must(http.MethodPut, placementURL+"/resource_providers/"+node.UUID+"/inventories", inventories{0, map[string]inventory{
		"VCPU":      {Total: 128, Min: 1, Max: 128, Step: 1, Ratio: 4},
		"MEMORY_MB": {Total: 1 << 20, Reserved: 512, Min: 1, Max: 1 << 20, Step: 1, Ratio: 1},
	}}, nil)
	for i := range scaleGPUs {
		postGPU(tb, c, node, fmt.Sprintf("gpu%d", i))
	}
	b.on("control", "mariadb", "--defaults-file=/etc/mysql/bed.cnf", "placement", "-e", fmt.Sprintf(`
		insert into resource_providers (created_at, uuid, name, generation)
			select now(), uuid(), concat('host', lpad(seq, 4, '0')), generation
			from seq_1_to_%d join resource_providers where name = 'host0000';
		update resource_providers set root_provider_id = id where root_provider_id is null;
		insert into resource_providers (created_at, uuid, name, generation, root_provider_id, parent_provider_id)
			select now(), uuid(), concat(n.name, substr(g.name, 9)), g.generation, n.id, n.id
			from resource_providers n join resource_providers g
			where n.name rlike '^host[0-9]*$' and n.name <> 'host0000' and g.name like 'host0000\_%%';
		insert into inventories (created_at, resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size, allocation_ratio)
			select now(), p.id, i.resource_class_id, i.total, i.reserved, i.min_unit, i.max_unit, i.step_size, i.allocation_ratio
			from resource_providers p join resource_providers m join inventories i on i.resource_provider_id = m.id
			where p.name <> m.name and m.name = concat('host0000', substr(p.name, 9));
		insert into resource_provider_traits (created_at, resource_provider_id, trait_id)
			select now(), p.id, t.trait_id
			from resource_providers p join resource_providers m join resource_provider_traits t on t.resource_provider_id = m.id
			where p.name <> m.name and m.name = concat('host0000', substr(p.name, 9));`, scaleHosts-1))
	// The copied providers are as the posted ones.
	for _, host := range []string{"host0000", fmt.Sprintf("host%04d", scaleHosts-1)} {
		all := addedTo(tb, c, host)
		if len(all) != scaleGPUs {
			tb.Fatalf("%s has %d GPUs in Placement, want %d", host, len(all), scaleGPUs)
		}
		for _, id := range all {
			var now inventories
			c.must(http.MethodGet, placementURL+"/resource_providers/"+id+"/inventories", nil, &now)
			if want := gpuInventories(now.Generation, 0); !reflect.DeepEqual(now, want) {
				tb.Fatalf("a GPU of %s has %+v, want %+v", host, now, want)
			}
		}
	}
}

// ask asks where an instance with so many shares fits, in the words of Nova's scheduler, and checks
// and times the answers.
func ask(t *testing.T, b *bed, c *client, settings string, shares, asks int) scaleRow {
	t.Helper()
	query := fmt.Sprintf("/allocation_candidates?limit=%d&required_GPU=CUSTOM_VGPUD_SOFTGPU&resources=MEMORY_MB%%3A128%%2CVCPU%%3A1"+
		"&resources_GPU=%s%%3A1024%%2C%s%%3A%d&root_required=%%21COMPUTE_STATUS_DISABLED", scaleLimit, memory, share, shares)
	row := scaleRow{Settings: settings, Flavor: fmt.Sprint(shares), Asks: asks}
	var times []time.Duration
	var before time.Duration
	for i := range asks + 1 {
		begin := time.Now()
		a := c.send(http.MethodGet, placementURL+query, nil)
		took := time.Since(begin)
		if a.status != http.StatusOK {
			t.Fatalf("%s: %d: %s", query, a.status, a.body)
		}
		if i == 0 { // The first answer after a start is slower, and it is checked.
			row.Candidates, row.Hosts = candidates(t, a, shares)
			before = b.processorTime("placement/bed.ini", "mysql/bed.cnf")
			continue
		}
		times = append(times, took)
	}
	row.Processor = (b.processorTime("placement/bed.ini", "mysql/bed.cnf") - before) / time.Duration(asks)
	slices.Sort(times)
	row.Median, row.P99, row.Longest = times[len(times)/2], times[len(times)*99/100], times[len(times)-1]
	row.Met = "yes"
	if row.P99 >= scaleGoal {
		row.Met = "**no**"
	}
	t.Logf("%+v", row)
	return row
}

// candidates returns how many candidates an answer has, and on how many hosts. It fails the test
// unless each is one GPU with both amounts.
func candidates(t *testing.T, a answer, shares int) (n, hosts int) {
	t.Helper()
	var got struct {
		Requests []struct {
			Allocations map[string]struct {
				Resources map[string]int `json:"resources"`
			} `json:"allocations"`
		} `json:"allocation_requests"`
		Summaries map[string]struct {
			Root string `json:"root_provider_uuid"`
		} `json:"provider_summaries"`
	}
	a.decode(t, &got)
	roots := make(map[string]bool)
	for _, r := range got.Requests {
		gpus := 0
		for id, p := range r.Allocations {
			if p.Resources[share] == shares && p.Resources[memory] == 1024 {
				gpus++
				roots[got.Summaries[id].Root] = true
			}
		}
		if gpus != 1 || len(r.Allocations) != 2 {
			t.Fatalf("a candidate is %+v, want %d shares and 1024 MiB of one GPU", r.Allocations, shares)
		}
	}
	if len(got.Requests) != scaleLimit {
		t.Fatalf("there are %d candidates, want %d", len(got.Requests), scaleLimit)
	}
	return len(got.Requests), len(roots)
}

// processorTime returns the processor time that the test bed's programs with one of these texts in their
// command lines have taken.
func (b *bed) processorTime(programs ...string) (sum time.Duration) {
	b.tb.Helper()
	const tick = 10 * time.Millisecond // USER_HZ
	// proc(5): utime and stime are the 14th and 15th fields. No name has a space.
	out := b.on("control", append([]string{"sh", "-c", `for p in /proc/[0-9]*; do
		grep -qsF "$(printf '%s\n' "$@")" "$p/cmdline" && cut -d ' ' -f 14,15 "$p/stat"; done; true`, "sh"}, programs...)...)
	for _, f := range strings.Fields(out) {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.tb.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// restartPlacement starts Placement anew with these lines in its section [placement], and waits
// until it answers.
func (b *bed) restartPlacement(lines string) {
	b.tb.Helper()
	// The section is the file's last one.
	b.on("control", "sh", "-c", `sed -i '/^\[placement\]$/,$d' /etc/placement/placement.conf && printf '[placement]\n%s' "$1" >>/etc/placement/placement.conf`, "sh", lines)
	if out, err := b.command("restart", "placement").CombinedOutput(); err != nil {
		b.tb.Fatalf("restart Placement: %v: %s", err, out)
	}
	awaitPlacement(b.tb, newClient(b, "admin", "admin"))
}

// awaitPlacement waits until Placement, which has just started, has answered a user.
func awaitPlacement(tb testing.TB, c *client) {
	tb.Helper()
	until(tb, "Placement", func() error {
		r, err := http.NewRequest(http.MethodGet, placementURL+"/resource_providers?name=none", nil)
		if err != nil {
			tb.Fatal(err)
		}
		r.Header.Set("X-Auth-Token", c.token)
		resp, err := c.http.Do(r)
		if err != nil {
			return err
		}
		_ = resp.Body.Close() // it is not read
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// scalePage is docs/results/nova-scale.md.
var scalePage = template.Must(template.New("").Parse(`# Placement with many hosts

Made by ` + "`make bench-nova`" + ` on {{.Date}}, on {{.Processors}} processors of a machine that others used meanwhile (load average before:
{{.Load}}), with MariaDB and {{.By}}.
{{.Hosts}} hosts with {{.GPUs}} GPUs each, none of them sold, are in Placement: the first one was posted as ` + "`vgpu-placement`" + ` does, and the others were copied from it in the database. Placement, one process of it, is asked for each flavor where it fits, one question after the other, in the words of Nova's
scheduler (1 VCPU, 128 MiB, the flavor's shares and 1024 MiB of one GPU in software; at most {{.Limit}} candidates). Times are the client's, from the
request to the last byte; processor time is that of Placement and its database, which others on the machine do not change.

The goal is a 99th percentile under {{.Goal}}.

| Placement's settings | flavor, shares | asked | candidates | on hosts | processor time, mean | median | p99 | longest | met |
|---|---|---|---|---|---|---|---|---|---|
{{range .Rows}}| {{.Settings}} | {{.Flavor}} | {{.Asks}} times | {{.Candidates}} | {{.Hosts}} | {{.Processor.Milliseconds}} ms | {{.Median.Milliseconds}} ms | **{{.P99.Milliseconds}} ms** | {{.Longest.Milliseconds}} ms | {{.Met}} |
{{end}}
` + "`limited`" + ` is this in Placement's configuration, on the controller:

    [placement]
{{.Settings}}
As installed, Placement works out a candidate for each of the {{.All}} GPUs and then drops all but {{.Limit}}. The settings, which its documentation advises for trees
with many equal providers, have it stop at 2000. That hardly changes the processor time, so most of it goes elsewhere than into candidates. Where the 99th
percentile is much more than the processor time, others had the processors meanwhile.
`))

// writeScale writes the page.
func writeScale(t *testing.T, by string, load string, rows []scaleRow) {
	t.Helper()
	var page bytes.Buffer
	err := scalePage.Execute(&page, map[string]any{
		"Date": time.Now().UTC().Format(time.DateOnly), "By": by, "Processors": runtime.NumCPU(), "Load": load,
		"Hosts": scaleHosts, "GPUs": scaleGPUs, "All": scaleHosts * scaleGPUs, "Limit": scaleLimit, "Goal": scaleGoal,
		"Rows": rows, "Settings": "    " + strings.ReplaceAll(strings.TrimSpace(scaleSettings[1].lines), "\n", "\n    ") + "\n",
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(*scaleDir, "nova-scale.md"), page.Bytes(), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// loadAverage returns the machine's of the last five minutes.
func loadAverage(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Fields(string(text))[1]
}
