// Decodes a manifest with the types of the program that reads it, strictly: an unknown field, a repeated one or a value of another type is
// an error. It prints the decoded documents as JSON, one a line.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	documents "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// The kinds that the manifests use.
var kinds = map[string]func() any{
	"v1 ConfigMap":                  func() any { return &core.ConfigMap{} },
	"v1 Secret":                     func() any { return &core.Secret{} },
	"v1 Service":                    func() any { return &core.Service{} },
	"apps/v1 Deployment":            func() any { return &apps.Deployment{} },
	"policy/v1 PodDisruptionBudget": func() any { return &policy.PodDisruptionBudget{} },
}

func kubernetes(text []byte) ([]any, error) {
	reader := documents.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var found []any
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		var head meta.TypeMeta
		if err := yaml.Unmarshal(document, &head); err != nil {
			return nil, err
		}
		made, ok := kinds[head.APIVersion+" "+head.Kind]
		if !ok {
			return nil, fmt.Errorf("document %d has the unknown kind %q of %q", len(found)+1, head.Kind, head.APIVersion)
		}
		object := made()
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return nil, fmt.Errorf("%s: %w", head.Kind, err)
		}
		found = append(found, object)
	}
}

func compose(file string, text []byte) ([]any, error) {
	details := types.ConfigDetails{
		WorkingDir:  filepath.Dir(file),
		ConfigFiles: []types.ConfigFile{{Filename: file, Content: text}},
		Environment: types.Mapping{"POSTGRES_PASSWORD": "for the check"},
	}
	project, err := loader.LoadWithContext(context.Background(), details, func(options *loader.Options) {
		options.SetProjectName("tidewire", true)
	})
	if err != nil {
		return nil, err
	}
	return []any{project}, nil
}

func run(form, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var found []any
	switch form {
	case "kubernetes":
		found, err = kubernetes(text)
	case "compose":
		found, err = compose(file, text)
	default:
		err = fmt.Errorf("the form is kubernetes or compose, and not %q", form)
	}
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(os.Stdout)
	for _, document := range found {
		if err := encoder.Encode(document); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: decode kubernetes|compose FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[2], err)
		os.Exit(1)
	}
}
