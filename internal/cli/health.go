package cli
type healthCmd struct{}
type accessCmd struct{}
type coverageCmd struct{}
type journalCmd struct{}
type checkPeerCmd struct{}
func (healthCmd) Run() error {return nil}
func (accessCmd) Run() error {return nil}
func (coverageCmd) Run() error {return nil}
func (journalCmd) Run() error {return nil}
func (checkPeerCmd) Run() error {return nil}
