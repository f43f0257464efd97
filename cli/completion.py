"""`ptxmotion completion`: prints the completion script of a shell.

A script calls `ptxmotion completion --complete SHELL WORD ...` for the candidates. The last WORD is the one at the
cursor, up to the cursor; the command itself is not among the words. The output begins with a line for the kind
(`candidates.Candidates`) and a line for the part of the current word that stays. Each further line is a candidate, a
tab, and what it means. The command is searched on PATH, so that a key press starts no program of the current folder.
"""

from __future__ import annotations

import argparse

from .outcome import FINE, usage_error

EPILOG = """\
examples:
  eval "$(ptxmotion completion bash)"                  (in ~/.bashrc)
  eval "$(ptxmotion completion zsh)"                   (in ~/.zshrc, after compinit)
  ptxmotion completion fish > ~/.config/fish/completions/ptxmotion.fish
"""

#: bash splits words at the characters of COMP_WORDBREAKS, `=` and `:` among them, and replaces only the last part. So
#: the words are taken from the text of the line, and a candidate begins after the last such character.
_BASH = r"""_ptxmotion() {
    local line="${COMP_LINE:0:COMP_POINT}" reply kind prefix word
    mapfile -t reply < <(command ptxmotion completion --complete bash "$line" "$COMP_WORDBREAKS" 2>/dev/null)
    kind="${reply[0]}" prefix="${reply[1]}"
    COMPREPLY=()
    case "$kind" in
        files | mixed) compopt -o default 2>/dev/null ;;
        folders) compopt -o dirnames 2>/dev/null ;;
    esac
    for word in "${reply[@]:2}"; do
        COMPREPLY+=("$prefix${word%%$'\t'*}")
    done
    case "$kind:${COMPREPLY[*]}" in
        values-open:* | *= | *:) compopt -o nospace 2>/dev/null ;;
    esac
}
complete -F _ptxmotion ptxmotion
"""

_ZSH = r"""#compdef ptxmotion
_ptxmotion() {
    local -a reply values
    local kind prefix line word text
    local -a before=("${(@Q)words[2,CURRENT-1]}")
    reply=("${(@f)$(command ptxmotion completion --complete zsh "${before[@]}" "${(Q)PREFIX}" 2>/dev/null)}")
    kind=$reply[1] prefix=$reply[2]
    [[ -n $prefix ]] && compset -P "${(b)prefix}"
    for line in "${(@)reply[3,-1]}"; do
        word="${${line%%$'\t'*}//:/\\:}" text="${line#*$'\t'}"
        [[ -n $word ]] && values+=("$word${text:+:$text}")
    done
    if (( $#values )); then
        if [[ $kind == values-open ]]; then
            _describe -t values value values -S ''
        else
            _describe -t values value values
        fi
    fi
    case $kind in
        files | mixed) _files ;;
        folders) _files -/ ;;
    esac
}
if [[ $funcstack[1] == _ptxmotion ]]; then
    _ptxmotion "$@"
else
    compdef _ptxmotion ptxmotion
fi
"""

_FISH = r"""function __ptxmotion_candidates
    set -l words (commandline -opc)
    set -l current (commandline -ct | string unescape)
    set -l reply (command ptxmotion completion --complete fish $words[2..-1] "$current" 2>/dev/null)
    set -l kind $reply[1]
    set -l prefix $reply[2]
    for line in $reply[3..-1]
        echo "$prefix$line"
    end
    set -l rest (string sub --start (math (string length -- "$prefix") + 1) -- "$current")
    switch $kind
        case files mixed
            for path in (__fish_complete_path "$rest")
                echo "$prefix$path"
            end
        case folders
            for path in (__fish_complete_directories "$rest")
                echo "$prefix$path"
            end
    end
end
complete -c ptxmotion -f -a '(__ptxmotion_candidates)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `completion`."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell to print the script for")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    print(SCRIPTS[arguments.shell], end="")
    return FINE


def complete(argv: list[str]) -> int:
    """Print the candidates for the last word; the exit code. ``argv`` are the shell and the words; for bash, the line
    up to the cursor and the value of COMP_WORDBREAKS instead of the words."""
    from .candidates import Candidates, candidates

    shell, words, breaks = "".join(argv[:1]), argv[1:], ""
    if shell == "bash" and len(words) == 2:
        breaks = words[1]
        words = words_of(words[0])[1:]
    if shell not in SCRIPTS or not words:
        usage_error("completion --complete is for the scripts that `completion SHELL` prints")
    current = words[-1]
    found = candidates(words[:-1], current)
    print(f"{found.kind}-open" if found.is_open else found.kind)
    if breaks:
        start = max(current.rfind(each) for each in breaks) + 1
        found = Candidates(found.kind, "", [((found.prefix + value)[start:], text) for value, text in found.values])
    print(found.prefix)
    for value, text in found.values:
        print(f"{value}\t{text}")
    return FINE


def words_of(line: str) -> list[str]:
    """The words of a command line, without quotes; the last one may be empty, or lack the end of its quotes.

    >>> words_of("ptxmotion opt 'a b' --gate=p")
    ['ptxmotion', 'opt', 'a b', '--gate=p']
    >>> words_of("ptxmotion opt ")
    ['ptxmotion', 'opt', '']
    """
    words = [""]
    quote, is_escaped = "", False
    for character in line:
        if is_escaped:
            words[-1] += character
            is_escaped = False
        elif character == "\\" and quote != "'":
            is_escaped = True
        elif quote:
            quote = "" if character == quote else quote
            words[-1] += "" if not quote else character
        elif character in "'\"":
            quote = character
        elif character.isspace():
            words += [""] if words[-1] else []
        else:
            words[-1] += character
    return words
