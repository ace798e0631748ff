// Transfers of one TCP connection through one drop-tail queue, in ns-3.37.
//
// A line of stdin is a transfer: "TcpCubic|TcpLinuxReno bit/s RTT-ns buffer-packets bytes [transmission,...]". The last
// field lists the transmissions of data, from 0, that are lost behind the queue. A line of stdout is its time: seconds
// from the write to the last byte.

#include <iostream>
#include <list>
#include <sstream>
#include <string>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace
{

const double WRITE_S = 3.0;             // long after the handshake
const uint32_t BEFORE_DATA = 2;         // packets to the receiver: SYN, and the acknowledgement of the handshake

struct Transfer
{
    uint64_t size = 0;
    uint64_t received = 0;
    double done = -1;

    void Accept(Ptr<Socket> socket, const Address&)
    {
        socket->SetRecvCallback(MakeCallback(&Transfer::Read, this));
    }

    void Read(Ptr<Socket> socket)
    {
        while (Ptr<Packet> packet = socket->Recv())
        {
            received += packet->GetSize();
        }
        if (received >= size && done < 0)
        {
            done = Simulator::Now().GetSeconds() - WRITE_S;
            Simulator::Stop();
        }
    }
};

void Write(Ptr<Socket> socket, uint64_t size)
{
    socket->Send(Create<Packet>(size));
}

double Run(const std::string& congestion, double bps, int64_t rtt_ns, uint32_t buffer, uint64_t size,
           const std::list<uint32_t>& lost)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName("ns3::" + congestion)));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(TypeId::LookupByName("ns3::TcpPrrRecovery")));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));     // 1502 B on the wire
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 30));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 30));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(NanoSeconds(rtt_ns + 200000000)));

    NodeContainer nodes;
    nodes.Create(2);
    InternetStackHelper().Install(nodes);
    PointToPointHelper line;
    line.SetDeviceAttribute("DataRate", DataRateValue(DataRate(static_cast<uint64_t>(bps))));
    line.SetChannelAttribute("Delay", TimeValue(NanoSeconds(rtt_ns / 2)));
    line.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(std::to_string(buffer) + "p"));
    NetDeviceContainer devices = line.Install(nodes);
    devices.Get(1)->SetAttribute("DataRate", DataRateValue(DataRate(1000000000000000ULL)));     // acks take no time
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer places = addresses.Assign(devices);
    TrafficControlHelper().Uninstall(devices);                  // else FqCoDel stands before the queue
    if (!lost.empty())
    {
        Ptr<ReceiveListErrorModel> errors = CreateObject<ReceiveListErrorModel>();
        errors->SetList(lost);
        devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
    }

    Transfer transfer;
    transfer.size = size;
    Ptr<Socket> receiver = Socket::CreateSocket(nodes.Get(1), TcpSocketFactory::GetTypeId());
    receiver->Bind(InetSocketAddress(Ipv4Address::GetAny(), 80));
    receiver->Listen();
    receiver->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                MakeCallback(&Transfer::Accept, &transfer));
    Ptr<Socket> sender = Socket::CreateSocket(nodes.Get(0), TcpSocketFactory::GetTypeId());
    sender->Bind();
    sender->Connect(InetSocketAddress(places.GetAddress(1), 80));
    Simulator::Schedule(Seconds(WRITE_S), &Write, sender, size);
    Simulator::Stop(Seconds(WRITE_S + 10000));
    Simulator::Run();
    Simulator::Destroy();
    return transfer.done;
}

} // namespace

int main()
{
    std::string line;
    std::cout.precision(9);
    while (std::getline(std::cin, line))
    {
        std::istringstream fields(line);
        std::string congestion;
        double bps = 0;
        int64_t rtt_ns = 0;
        uint32_t buffer = 0;
        uint64_t size = 0;
        std::string given;
        fields >> congestion >> bps >> rtt_ns >> buffer >> size >> given;
        std::list<uint32_t> lost;
        std::istringstream numbers(given);
        for (std::string number; std::getline(numbers, number, ',');)
        {
            lost.push_back(std::stoul(number) + BEFORE_DATA);
        }
        std::cout << std::fixed << Run(congestion, bps, rtt_ns, buffer, size, lost) << std::endl;
    }
    return 0;
}
