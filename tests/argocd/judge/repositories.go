package main

import (
	"context"
	"fmt"
	"time"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/reposerver/apiclient"
	"github.com/argoproj/argo-cd/v3/reposerver/cache"
	"github.com/argoproj/argo-cd/v3/reposerver/metrics"
	"github.com/argoproj/argo-cd/v3/reposerver/repository"
	cacheutil "github.com/argoproj/argo-cd/v3/util/cache"
	"github.com/argoproj/argo-cd/v3/util/git"
)

// repositoryServer is Argo CD's repository server, in this process.
type repositoryServer struct {
	service *repository.Service
}

// newRepositoryServer creates a server that checks repositories out below the folder.
func newRepositoryServer(folder string) *repositoryServer {
	// The cache expires at once, because a repository may get a commit between two questions.
	memory := cacheutil.NewCache(cacheutil.NewInMemoryCache(time.Nanosecond))
	kept := cache.NewCache(memory, time.Nanosecond, time.Nanosecond, time.Second)
	constants := repository.RepoServerInitConstants{ParallelismLimit: 1}
	service := repository.NewService(metrics.NewMetricsServer(), kept, constants, git.NoopCredsStore{}, folder)
	return &repositoryServer{service}
}

// repositories maps the URLs of a question to folders.
type repositories struct {
	server  *repositoryServer
	folders map[string]string
}

func (r repositories) find(url string) (*v1alpha1.Repository, error) {
	folder, found := r.folders[url]
	if !found {
		return nil, fmt.Errorf("repository %q is not in the question", url)
	}
	return &v1alpha1.Repository{Repo: "file://" + folder}, nil
}

// GetFiles asks the repository server as Argo CD's own service does.
func (r repositories) GetFiles(ctx context.Context, url, revision, _, pattern string, _ bool, _ *v1alpha1.SourceIntegrity) (map[string][]byte, error) {
	repository, err := r.find(url)
	if err != nil {
		return nil, err
	}
	request := &apiclient.GitFilesRequest{Repo: repository, Revision: revision, Path: pattern, NoRevisionCache: true}
	response, err := r.server.service.GetGitFiles(ctx, request)
	if err != nil {
		return nil, err
	}
	return response.GetMap(), nil
}

// GetDirectories asks the repository server as Argo CD's own service does.
func (r repositories) GetDirectories(ctx context.Context, url, revision, _ string, _ bool, _ *v1alpha1.SourceIntegrity) ([]string, error) {
	repository, err := r.find(url)
	if err != nil {
		return nil, err
	}
	request := &apiclient.GitDirectoriesRequest{Repo: repository, Revision: revision, NoRevisionCache: true}
	response, err := r.server.service.GetGitDirectories(ctx, request)
	if err != nil {
		return nil, err
	}
	return response.GetPaths(), nil
}
