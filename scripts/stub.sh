#!/bin/sh
# orch @VERSION@ in one file: it unpacks itself once, into a folder of its user's, and runs from there.
# ORCH_CACHE_DIR names another folder for that than ~/.cache/orch.
name=@NAME@
case $0 in
    /*) program=$0 ;;
    *) program=$PWD/$0 ;;
esac
tried=

# start FOLDER WORDS…: become the program that lies there, unpacked first where need be; returns if that cannot be.
start() {
    folder=$1
    shift
    if ! ready "$folder"; then
        why=$(unpack "$folder") || {
            tried="$tried
  $folder: ${why:-it cannot be written}"
            return
        }
    fi
    export ORCH_PROGRAM="$program"
    exec "$folder/$name/orch" "$@"
}

# Whether the program lies in FOLDER, and nobody else can have put it there.
ready() {
    mine "$1" && mine "$1/$name" && [ -x "$1/$name/orch" ]
}

mine() {
    [ -O "$1" ] && [ ! -L "$1" ]
}

# A killed process that nobody has asked for yet is dead.
alive() {
    kill -0 "$1" 2>/dev/null && ! grep -qs '^State:.Z' "/proc/$1/status"
}

# Whole or not at all: under another name first, tried, and then renamed. Prints why it failed.
unpack() {
    umask 077
    mkdir -p "$1" 2>/dev/null || { echo "the folder cannot be made"; return 1; }
    mine "$1" || { echo "the folder is not this user's own"; return 1; }
    host=$(uname -n)
    # Who unpacks is a child, which goes on when the program alone is killed.
    pid=$(exec sh -c 'echo $PPID')
    new=$1/.new-$host-$pid
    # What a killed unpacking has left, be it one of the same number.
    for old in "$1/.new-$host-"*; do
        [ -d "$old" ] && { [ "$old" = "$new" ] || ! alive "${old##*-}"; } && rm -rf "$old" 2>/dev/null
    done
    trap 'rm -rf "$new" "$new.old"' EXIT
    trap 'exit 1' HUP INT TERM
    mkdir "$new" 2>/dev/null || { echo "it cannot be written"; return 1; }
    tail -c +@OFFSET@ "$program" | gzip -dc 2>/dev/null | tar -xpf - -C "$new" 2>/dev/null ||
        { echo "unpacking failed: is there room for @MEGABYTES@ MB, and is $program whole?"; return 1; }
    said=$("$new/orch" --version 2>&1) || { echo "what lies there cannot be run (${said:-is it mounted noexec?})"; return 1; }
    # A power cut must not leave a whole folder of empty files.
    sync -f "$new" 2>/dev/null || sync
    mv -T "$new" "$1/$name" 2>/dev/null || ready "$1" || { echo "it cannot be written"; return 1; }
    # Other versions that nobody has started for a month, and that nobody runs. Renamed first: never there in part.
    for old in "$1"/orch-*/orch; do
        if [ "$old" != "$1/$name/orch" ] && [ -n "$(find "$old" -prune -atime +30)" ] &&
            ! ls -l /proc/[0-9]*/exe 2>/dev/null | grep -qF -- "-> $old"; then
            mv "${old%/orch}" "$new.old" && rm -rf "$new.old"
        fi
    done
}

[ -z "$ORCH_CACHE_DIR" ] || start "$ORCH_CACHE_DIR" "$@"
case ${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}} in
    /*) start "${XDG_CACHE_HOME:-$HOME/.cache}/orch" "$@" ;;
esac
user=$(id -u 2>/dev/null)
start "/var/tmp/orch-$user" "$@"
start "${TMPDIR:-/tmp}/orch-$user" "$@"
printf 'orch: it can be unpacked nowhere: give it a folder of your own with ORCH_CACHE_DIR=/path. Tried:%s\n' "$tried" >&2
exit 73
