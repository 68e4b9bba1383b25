package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"vgpud/clock"
	"vgpud/cmd/internal/service"
	"vgpud/cmd/internal/systemd"
	"vgpud/cmd/internal/version"
	"vgpud/mediator/kubernetes"
)

// connect returns a client of the API server.
func connect(c config) (clientset.Interface, error) {
	var to *rest.Config
	var err error
	if c.Kubeconfig == "" {
		if to, err = rest.InClusterConfig(); errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("this is no pod: want kubeconfig in the configuration")
		}
	} else {
		to, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	to.UserAgent = "vgpu-dra/" + version.String()
	return clientset.NewForConfig(to)
}

// serve runs the driver as a service.
func serve(ctx context.Context, c config, client clientset.Interface, d daemon, log *slog.Logger) (err error) {
	// The kubelet makes its own directory; a driver makes what it has in there.
	data := c.pluginDir()
	if err := os.MkdirAll(data, 0o750); err != nil {
		return fmt.Errorf("make the directory of the socket for the kubelet: %w", err)
	}
	registry := service.NewRegistry()
	counts := newCounts(registry)
	stopMetrics, err := service.ServeMetrics(c.Metrics, registry, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopMetrics()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	helper, err := kubeletplugin.Start(ctx, &plugin{config: c, daemon: d, log: log, counts: counts},
		kubeletplugin.DriverName(kubernetes.Driver), kubeletplugin.NodeName(c.Node), kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(c.registryDir()),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.HealthService(false))
	if err != nil {
		return fmt.Errorf("serve the kubelet: %w", err)
	}
	defer helper.Stop()
	var rounds atomic.Uint64
	p := publisher{config: c, daemon: d, clock: clock.Real{}, log: log, counts: counts, publish: func(r resourceslice.DriverResources) error {
		return helper.PublishResources(ctx, r)
	}}
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() { systemd.FeedWatchdog(ctx, systemd.Watchdog()/2, log, systemd.Advances(&rounds)) })
	systemd.TryNotify(log, "READY=1")
	log.Info("telling Kubernetes of this node's GPUs", "node", c.Node, "daemon", c.Socket)
	err = p.run(ctx, func() { rounds.Add(1) })
	systemd.TryNotify(log, "STOPPING=1")
	return err
}
