package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/creack/pty"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// Time between two lines of a log.
const tick = 200 * time.Millisecond

// Folders, one a pod, below one.
type pods struct {
	folder string
}

// ExecInContainer runs a command of this machine in the pod's folder.
func (pods *pods) ExecInContainer(_ context.Context, pod, _, _ string, arguments []string, in io.Reader,
	out, errs io.WriteCloser, tty bool, sizes <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(arguments) == 0 {
		return errors.New("no command")
	}
	folder := filepath.Join(pods.folder, filepath.FromSlash(pod))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	command := exec.Command(arguments[0], arguments[1:]...)
	command.Dir = folder
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "TERM=dumb", "PS1=$ ", "POD=" + pod}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if tty {
		err = runInTerminal(command, in, out, sizes)
	} else {
		err = run(command, in, out, errs)
	}
	// The error that carries an exit code to kubectl.
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return &utilexec.ExitErrorWrapper{ExitError: exit}
	}
	return err
}

func run(command *exec.Cmd, in io.Reader, out, errs io.Writer) error {
	if out != nil {
		command.Stdout = out
	}
	if errs != nil {
		command.Stderr = errs
	}
	if in == nil {
		return command.Run()
	}
	// By hand: Run would wait for an input that nobody ends.
	stdin, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(stdin, in)
		_ = stdin.Close()
	}()
	return command.Wait()
}

func runInTerminal(command *exec.Cmd, in io.Reader, out io.Writer, sizes <-chan remotecommand.TerminalSize) error {
	terminal, err := pty.Start(command)
	if err != nil {
		return err
	}
	defer terminal.Close()
	go func() {
		for size := range sizes {
			_ = pty.Setsize(terminal, &pty.Winsize{Rows: size.Height, Cols: size.Width})
		}
	}()
	if in != nil {
		go func() {
			_, _ = io.Copy(terminal, in)
			// Who was there has left: the shell hears of it as of a line that went dead.
			_ = command.Process.Signal(syscall.SIGHUP)
		}()
	}
	// Ends with an error, always: the last one at the terminal is gone.
	_, _ = io.Copy(out, terminal)
	return command.Wait()
}

// AttachContainer is a main process that repeats what it is told, line by line;
// told nothing it counts.
func (pods *pods) AttachContainer(ctx context.Context, pod, _, container string, in io.Reader, out, errs io.WriteCloser,
	tty bool, sizes <-chan remotecommand.TerminalSize) error {
	script := `n=0; while :; do n=$((n + 1)); echo "tick $n of $POD"; sleep 0.2; done`
	if in != nil {
		script = `echo "attached to $POD"; while read -r line; do echo "heard: $line"; done`
	}
	return pods.ExecInContainer(ctx, pod, "", container, []string{"sh", "-c", script}, in, out, errs, tty, sizes, 0)
}

// PortForward joins a stream and a port of this machine's loopback.
func (pods *pods) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("port %d: %w", port, err)
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, connection)
	return err
}
