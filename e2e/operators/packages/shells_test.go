package packages

import (
	"testing"

	"vgpud/e2e/operators"
)

// typing starts an interactive shell in a terminal, by zsh's module for that, and types a line into it,
// up to the key that completes it. It waits until the shell shows what it was completed to.
//
//	$1  the shell's command line
//	$2  what the shell is told first
//	$3  what is typed
//	$4  a pattern of what the line becomes
const typing = `
mkdir -p /dev/pts
mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts
mount --bind /dev/pts/ptmx /dev/ptmx
cat >/tmp/typing.zsh <<'END'
zmodload zsh/zpty
zpty -e shell $1
zpty -w shell "$2; PS1='re''ady> '"
zpty -r shell seen '*ready> ' || { print -r "the shell ended: $seen"; exit 1; }
zpty -w -n shell "$3"$'\t'
zpty -r shell seen "*$4*" || { print -r "the shell ended: $seen"; exit 1; }
print -r -- "${(V)seen}"
END
typing() { TERM=dumb timeout 300 zsh -f /tmp/typing.zsh "$@"; }
`

// TestCompletion: in each shell, as the package has set it up, words complete that only the command
// knows (its own, and keys), and names that only the daemon knows.
func TestCompletion(t *testing.T) {
	r := newRoot(t, "shells.tar")
	r.run(aptInstall + r.copy(operators.Built(t).Deb(t, "vgpud")))
	for name, script := range map[string]string{
		"bash": `
completes() { typing 'bash --norc --noprofile -i' '. /usr/share/bash-completion/bash_completion' "$@"; }
`,
		"zsh": `
completes() { typing 'zsh -f -i' 'autoload -Uz compinit; compinit -u -D' "$@"; }
`,
		"fish": `
completes() { fish --no-config -c 'source /usr/share/fish/vendor_completions.d/vgpuctl.fish; complete -C "$argv[1]"' "$1" | tee /tmp/said; grep -x "$2.*" /tmp/said; }
`,
	} {
		t.Run(name, func(t *testing.T) {
			s := *r
			s.tb = t
			word := func(typed, line, last string) string {
				if name == "fish" { // which answers with the last word alone
					return "completes '" + typed + "' '" + last + "'\n"
				}
				return "completes '" + typed + "' '" + line + "'\n"
			}
			s.run(start + typing + script +
				word("vgpuctl uncor", "vgpuctl uncordon", "uncordon") +
				word("vgpuctl set vm we", "vgpuctl set vm web1", "web1") +
				word("vgpuctl set vm web1 guar", "vgpuctl set vm web1 guarantee=", "guarantee=") +
				word("vgpuctl create vm web2 --gpu gp", "vgpuctl create vm web2 --gpu gpu0", "gpu0"))
		})
	}
}
