// Gen compiles .proto files to Go, without protoc and without network: the
// compiler and both generators are Go modules pinned in this folder's go.mod,
// which keeps them out of the product's own module.
//
//	go run . DIR...     # each DIR has .proto files two or three folders down
//
// A file is named for its path below its DIR, and its Go is written beside it.
package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	_ "github.com/planetscale/vtprotobuf/features/marshal"
	_ "github.com/planetscale/vtprotobuf/features/size"
	_ "github.com/planetscale/vtprotobuf/features/unmarshal"
	vt "github.com/planetscale/vtprotobuf/generator"
	gengo "google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: gen DIR...")
		os.Exit(64)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cannot generate:", err)
		os.Exit(2)
	}
}

func run(dirs []string) error {
	var names []string
	home := map[string]string{} // the DIR of each folder
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*", "*", "*.proto"))
		if err != nil || len(paths) == 0 {
			return fmt.Errorf("no .proto below %s (%v)", dir, err)
		}
		for _, p := range paths {
			name, err := filepath.Rel(dir, p)
			if err != nil {
				return err
			}
			names = append(names, name)
			home[path.Dir(filepath.ToSlash(name))] = dir
		}
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: dirs}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: names,
		Parameter:      proto.String("paths=source_relative"),
	}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i).FileDescriptor)
		}
		request.ProtoFile = append(request.ProtoFile, descriptorOf(fd))
	}
	for _, fd := range files {
		add(fd)
	}
	return generate(home, request)
}

// descriptorOf keeps source info, which carries the comments.
func descriptorOf(fd protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if p, ok := fd.(protoutil.DescriptorProtoWrapper); ok {
		if fdp, ok := p.AsProto().(*descriptorpb.FileDescriptorProto); ok {
			return fdp
		}
	}
	return protodesc.ToFileDescriptorProto(fd)
}

func generate(home map[string]string, request *pluginpb.CodeGeneratorRequest) error {
	plugin, err := protogen.Options{}.New(request)
	if err != nil {
		return err
	}
	for _, f := range plugin.Files {
		if f.Generate {
			gengo.GenerateFile(plugin, f)
		}
	}
	fast, err := vt.NewGenerator(plugin, []string{"marshal", "unmarshal", "size"}, &vt.Config{
		Poolable:        vt.NewObjectSet(),
		PoolableExclude: vt.NewObjectSet(),
	})
	if err != nil {
		return err
	}
	fast.Generate()
	response := plugin.Response()
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		text, err := shorten(f.GetName(), f.GetContent())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(home[path.Dir(f.GetName())], f.GetName()),
			[]byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
