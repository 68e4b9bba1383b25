package abi

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tables reads the first n columns of the page's tables, by the heading above each.
func tables(t *testing.T) func(heading string, n int) [][]string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/device.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][][]string{}
	heading, row := "", 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			heading, row = strings.TrimLeft(line, "# "), 0
		}
		if !strings.HasPrefix(line, "|") {
			continue
		}
		if row++; row <= 2 { // heads and rule
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		found[heading] = append(found[heading], cells)
	}
	return func(heading string, n int) [][]string {
		t.Helper()
		rows := found[heading]
		if rows == nil {
			t.Errorf("no table under %q", heading)
		}
		out := make([][]string, 0, len(rows))
		for _, r := range rows {
			if len(r) < n {
				t.Errorf("%s: row %v has fewer than %d columns", heading, r, n)
				continue
			}
			out = append(out, r[:n])
		}
		return out
	}
}

// TestDocumented compares docs/device.md with this package.
func TestDocumented(t *testing.T) {
	table := tables(t)
	compare := func(heading string, want [][]string) {
		t.Helper()
		if diff := cmp.Diff(want, table(heading, len(want[0]))); diff != "" {
			t.Errorf("docs/device.md, %s (-code +page):\n%s", heading, diff)
		}
	}
	registers := func(format string, regs []Register) (rows [][]string) {
		for _, r := range regs {
			rows = append(rows, []string{fmt.Sprintf(format, r.Offset), r.Name, r.Access})
		}
		return rows
	}
	compare("Identity", registers("0x%03x", Registers))
	compare("Context slots", registers("0x%02x", ContextRegisters))
	compare("Channel slots", registers("0x%02x", ChannelRegisters))
	compare("The task table", registers("0x%02x", TaskRegisters))
	var reasons [][]string
	for i, text := range waitReasonTexts {
		reasons = append(reasons, []string{fmt.Sprint(i), text})
	}
	compare("Why a context waits", reasons)

	words := func(ws []Word) (rows [][]string) {
		for _, w := range ws {
			rows = append(rows, []string{fmt.Sprintf("0x%03x", w.Offset), w.Name, w.Writer})
		}
		return rows
	}
	compare("The device's page", words(DeviceWords))
	compare("A channel's page", words(ChannelWords))
	compare("The event area's page", words(EventAreaWords))
	compare("An event kernel's page", words(EventWords))

	fields := func(fs []Field) (rows [][]string) {
		for _, f := range fs {
			rows = append(rows, []string{fmt.Sprint(f.Offset), fmt.Sprint(f.Size), f.Name})
		}
		return rows
	}
	compare("A row", fields(EventRowFields))
	compare("Submission entry", fields(HeaderFields))
	compare("Completion entry", fields(CompletionFields))
	compare("The launch's arguments", fields(PreemptArgsFields))
	compare("The control block", words(ControlWords))

	var rows [][]string
	for i := range formNames {
		for _, f := range FormFields[Form(i)] {
			rows = append(rows, []string{Form(i).String(), fmt.Sprint(f.Offset), fmt.Sprint(f.Size), f.Name})
		}
	}
	compare("Forms", rows)

	rows = nil
	for _, c := range Commands {
		feature, inline := "", ""
		if c.Feature != 0 {
			feature = c.Feature.String()
		}
		if c.Inline {
			inline = "yes"
		}
		rows = append(rows, []string{fmt.Sprintf("0x%02x", uint16(c.Op)), c.Name, c.Form.String(), feature, inline})
	}
	compare("Opcodes", rows)

	rows = nil
	for _, i := range statuses {
		s := i.status
		rows = append(rows, []string{fmt.Sprint(uint16(s)), s.Name(), fmt.Sprint(s.CUDA()), s.String()})
	}
	compare("Status codes", rows)

	rows = nil
	for c := range ErrorCode(errorCodeEnd) {
		rows = append(rows, []string{fmt.Sprint(uint32(c)), c.String()})
	}
	compare("Error codes", rows)

	rows = nil
	named := Features(0)
	for i, name := range featureNames {
		if name != "" { // reserved
			rows = append(rows, []string{fmt.Sprint(i), name})
			named |= 1 << i
		}
	}
	compare("Features", rows)
	if AllFeatures != named {
		t.Errorf("names for %#x, layouts for %#x", named, AllFeatures)
	}

	rows = nil
	for i, name := range preemptFormNames {
		rows = append(rows, []string{fmt.Sprint(1 << i), name})
	}
	compare("Preemptible launches", rows)
	if preemptForms != 1<<len(preemptFormNames)-1 {
		t.Errorf("%d form names for %v", len(preemptFormNames), preemptForms)
	}

	rows = nil
	for i, name := range eventFlagNames {
		rows = append(rows, []string{fmt.Sprint(i), name})
	}
	compare("Queues", rows)

	rows = nil
	for i, context := range contextStateNames {
		channel := ""
		if i < len(channelStateNames) {
			channel = channelStateNames[i]
		}
		rows = append(rows, []string{fmt.Sprint(i), context, channel})
	}
	compare("States", rows)
}

// TestLinesApart checks that no two written words share a cache line.
func TestLinesApart(t *testing.T) {
	lines := map[int]string{}
	for _, w := range ChannelWords {
		if other, taken := lines[w.Offset/LineSize]; taken {
			t.Errorf("%s and %s share a line", w.Name, other)
		}
		lines[w.Offset/LineSize] = w.Name
		if w.Offset >= channelWordsEnd || w.Offset%4 != 0 {
			t.Errorf("%s at %#x", w.Name, w.Offset)
		}
	}
	if ContextWord(MaxContexts) > PageSize || ChannelSlot(MaxChannels, 0) > DoorbellTable ||
		Doorbell(MaxChannels) > EventDoorbellTable || EventDoorbellTable+MaxEventDoorbells*DoorbellSize > BAR0Size ||
		ContextSlot(MaxContexts, 0) > ChannelTable {
		t.Error("tables overlap")
	}
}
