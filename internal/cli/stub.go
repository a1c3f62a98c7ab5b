package cli
type accessCmd struct{}
type checkPeerCmd struct{}
func (accessCmd) Run() error {return nil}
func (checkPeerCmd) Run() error {return nil}
